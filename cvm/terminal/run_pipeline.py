"""Programs and kernels through passes chosen by name or by target, and the text that results."""

import re
from collections.abc import Callable, Iterator, Sequence

from cvm.dialect.ir.function import Function, Graph
from cvm.dialect.ir.module import Module
from cvm.dialect.ir.program_printer import print_module
from cvm.dialect.kernel_ir.execution_plan import Plan
from cvm.dialect.kernel_ir.formulas import Formulas
from cvm.dialect.kernel_ir.loops import Kernel
from cvm.dialect.support.entry_points import load_offered
from cvm.dialect.support.suggest import did_you_mean
from cvm.lowering.clocked_plan import StepPlan
from cvm.lowering.pass_context import Context
from cvm.lowering.passes import OPTIONS, REGISTERED, Pass, placed, run_passes
from cvm.lowering.pipeline import (
    DOWN,
    DOWN_TO_TICK,
    PASSES,
    PIPELINES,
    TARGETS,
    context_of,
    step_context,
)
from cvm.lowering.scheduling.apply_steps import step_pass
from cvm.lowering.scheduling.steps import STEPS, Refused, read_step
from cvm.lowering.stepping.split_step_and_observe import split_step_and_observe
from cvm.terminal.read_program import Level
from cvm.terminal.usage import Usage
from cvm.terminal.watch_passes import Watch, text_of

FORMS = ("graph", "formulas", "loops")  # of a program, each below the one before
FORM_OF = {
    Function: "graph",
    Formulas: "formulas",
    Plan: "loops",
    Kernel: "loops",
    StepPlan: "loops",
}


def chosen_passes(pipeline: str, target: str | None) -> Sequence[Pass]:
    return _of_target(target) if target and not pipeline else tuple(_chosen(pipeline, target))


def _of_target(target: str) -> Sequence[Pass]:
    if target not in TARGETS:
        raise Usage(
            f"there are no passes for the target {target}; there are for {', '.join(TARGETS)}"
        )
    return placed(TARGETS[target])


def text_after(
    program: Level, pipeline: str = "", target: str | None = None, watch: Watch | None = None
) -> str:
    """The text of a program after passes, or after all passes of a target."""
    passes, form = complete(chosen_passes(pipeline, target), FORM_OF.get(type(program), "graph"))
    watch = watch or Watch()
    if watch.generic and form != "graph":
        raise Usage("--generic is a form of the graph, and this pipeline ends below it")
    if not isinstance(program, Module):
        return text_of(run_passes(watch.over(passes, program.name), program, Context()))
    if form == "graph":
        functions, module = dict(program.functions), program
        for name, f in program.functions.items():
            if not isinstance(f, Graph):  # whose operations stand for its whole clock
                context = context_of(module, f)
                functions[name] = run_passes(watch.over(passes, name), f, context)
                steps = {
                    n: g for n, g in context.module.functions.items() if n not in module.functions
                }
                module, functions = (
                    module.with_functions({**module.functions, **steps}),
                    {**functions, **steps},
                )
        return print_module(program.with_functions(functions), watch.generic)
    return "\n".join(_below(passes, program, None if pipeline else target, watch))


def all_passes() -> dict[str, Pass]:
    """Every pass by name, those of other packages last."""
    load_offered("cvm.passes")
    return {**PASSES, **REGISTERED}


def check_pass_name(name: str, *extra: str) -> None:
    load_offered("cvm.passes", name)
    names = (*all_passes(), *PIPELINES, *STEPS)
    if name not in (*names, *extra):
        raise Usage(
            f"there is no pass {name}{did_you_mean(name, names)}; opt --list names them all"
        )


def _chosen(pipeline: str, target: str | None = None) -> Iterator[Pass]:
    """The passes of a pipeline such as `fuse,unroll{factor=4}`, in the variant of the target or of
    passes beside.
    """
    if re.search(r"\{[^}]*(\{|$)", pipeline):
        raise Usage(
            f"--pipeline {pipeline}: expected }} to close the {{ before the options of a pass"
        )
    parts = re.findall(r"\s*((?:[^,{]|\{[^}]*\})+)", pipeline)
    names = [part.partition("{")[0].strip() for part in parts]
    for name in names:
        check_pass_name(name)
    variant: Sequence[Pass] = PIPELINES["step"] if "pack_state" in names else ()
    if target is not None:
        variant = _of_target(target)
    elif any(p.level == "gpu" for name, p in all_passes().items() if name in names):
        variant = TARGETS["cuda"]
    passes = {**all_passes(), **{p.name: p for p in variant}}
    for name, part in zip(names, parts, strict=True):
        options = part.partition("{")[2].rpartition("}")[0]
        if name in STEPS and (name not in passes or re.search(r"\b(loops?|at)=", options)):
            yield _step(part)
        elif name in passes:
            yield (
                passes[name].with_options(**_options(passes[name], options))
                if options
                else passes[name]
            )
        elif options:
            raise Usage(f"{name} is a pipeline; options are those of passes")
        else:
            yield from PIPELINES[name]


def _step(text: str) -> Pass:
    """A step of a schedule, which names its loops, as a pass."""
    try:
        return step_pass(read_step(text))
    except Refused as e:
        raise Usage(f"--pipeline {text.strip()}: {e}") from None


FORMS_OF_OPTIONS: dict[type, tuple[str, str, Callable[[str], object]]] = {
    bool: ("true|false", "true or false", "true".__eq__),
    int: ("[0-9]{1,18}", "a whole number", int),
    str: (r"[\w.+-]*", "letters, digits and any of _ . + -", str),
}


def _options(p: Pass, text: str) -> dict[str, object]:
    """The options in braces after a pass, as values of the types that they have."""
    options: dict[str, object] = {}
    for item in text.replace(",", " ").split():
        name, _, value = item.partition("=")
        if not isinstance(p.options.get(name), OPTIONS):
            listed = ", ".join(p.options) or "none"
            raise Usage(
                f"{p.name} has no option {name}{did_you_mean(name, p.options)}; its "
                f"options: {listed}"
            )
        kind = type(p.options[name])
        form, what, read = FORMS_OF_OPTIONS[kind]
        if not re.fullmatch(form, value):
            raise Usage(f"{p.name}{{{name}}}: expected {what}, got {value!r}")
        options[name] = read(value)
    return options


def complete(passes: Sequence[Pass], form: str) -> tuple[list[Pass], str]:
    """The passes, and before them those that take the program down to the form that they transform;
    and its last form.
    """
    pipeline: list[Pass] = []
    packed, ticks = False, any(p.name == "pack_state" for p in passes)
    for p in passes:
        if FORMS.index(required := FORM_OF[p.unit]) < FORMS.index(form):
            where = (
                f"after {pipeline[-1].name} there are only {form}"
                if pipeline
                else f"the program holds {form}"
            )
            raise Usage(f"{p.name} works on the {required}, but {where}")
        if (p.unit is StepPlan) != packed and (p.unit is StepPlan or p.name == "pack_state"):
            raise Usage(
                f"{p.name} works on "
                f"{'plain loops' if packed else 'the loops that pack_state gives'}"
            )
        packed = packed or p.name == "pack_state"
        while form != required:
            pipeline += (DOWN_TO_TICK if ticks else DOWN)[form]
            form = FORMS[FORMS.index(form) + 1]
        pipeline.append(p)
        form = p.level if p.level in FORMS else "loops"
    return pipeline, form


def _below(
    passes: Sequence[Pass], module: Module, target: str | None, watch: Watch
) -> Iterator[str]:
    """The functions after passes that end below the graph: of a graph, its tick (on a CPU by
    `step`) and its probes.
    """
    step = (
        PIPELINES["step"]
        if target == "cpu"
        else passes
        if any(p.name == "pack_state" for p in passes)
        else ()
    )
    for function in module.functions.values():
        if not isinstance(function, Graph):
            watched = watch.over(passes, function.name)
            yield text_of(run_passes(watched, function, context_of(module, function)))
            continue
        clocked = split_step_and_observe(module, function)
        if step and clocked.advance.results:
            watched = watch.over(step, function.name)
            yield text_of(run_passes(watched, clocked.advance, step_context(module, clocked)))
        for f in (clocked.advance, clocked.observe):
            if f.results and not (step and (f is clocked.advance or step is passes)):
                yield text_of(
                    run_passes(watch.over(passes, function.name), f, context_of(module, f))
                )
