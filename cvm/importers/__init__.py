"""Models of other systems to programs, a module for each system."""
