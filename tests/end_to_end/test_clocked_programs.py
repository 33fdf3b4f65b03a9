"""Graphs: ticks, feedback, reading and writing, state in files, sensors and actuators, on every
target.
"""

import contextlib
import pickle
import warnings

import numpy as np
import pytest

import cvm

TARGETS = ("reference", "cpu")


@pytest.fixture(params=TARGETS)
def target(request):
    return request.param


COUNTER = """
graph @counter {
  %n = cog.field "n" init dense<2.75> : !cog.field<[], f32>
  %next = cog.add %n, 1
  cog.feedback %n, %next
  cog.probe "next" %next
}
"""


def graph(text, target, entry="main"):
    return cvm.compile(text, entry=entry, target=target)


def test_computed_fields_are_consistent_at_every_tick(target):
    g = graph(COUNTER, target, "counter")
    assert g.reset() == 0
    assert (g.read("n"), g.read("next")) == (2.75, 3.75)
    assert g.step() == 1
    assert (g.read("n"), g.read("next")) == (3.75, 4.75)
    assert g.step(1000) == 1001 == g.time()
    assert g.read("n") == 1003.75
    g.reset()
    assert (g.time(), g.read("n")) == (0, 2.75)


def test_a_graph_that_was_not_reset_resets_itself(target):
    g = graph(COUNTER, target, "counter")
    assert g.read("n") == 2.75
    fresh = graph(COUNTER, target, "counter")
    assert fresh.step(0) == 0
    assert fresh.step() == 1
    assert fresh.read("n") == 3.75


def test_all_feedback_moves_at_once(target):
    text = """
    graph @main {
      %a = cog.field "a" init dense<[1.0, 2.0]> : !cog.field<[2], f32>
      %b = cog.field "b" init dense<[3.0, 4.0]> : !cog.field<[2], f32>
      cog.feedback %a, %b
      cog.feedback %b, %a
    }
    """
    g = graph(text, target)
    for tick in range(5):
        want = ([1, 2], [3, 4]) if tick % 2 == 0 else ([3, 4], [1, 2])
        assert (g.read("a").tolist(), g.read("b").tolist()) == want
        g.step()


def test_one_call_of_many_ticks_equals_many_calls_of_one(target):
    text = """
    graph @main {
      %x = cog.field "x" init dense<[[0.1, 0.7], [0.3, 0.9]]> : !cog.field<[2, 2], f32>
      %moved = cog.shift_cyclic %x {amount = [1, 0]}
      %half = cog.mul %moved, 0.4375
      %y = cog.add %half, %x
      %z = cog.mod %y, 1.0
      cog.feedback %x, %z
    }
    """
    one, many = graph(text, target), graph(text, target)
    one.step(37)
    for _ in range(37):
        many.step()
    assert one.read("x").tobytes() == many.read("x").tobytes()


def test_targets_agree_bit_for_bit():
    text = """
    graph @main {
      %z = cog.field "z" init dense<[(0.1, 0.7), (0.3, -0.9)]> : !cog.field<[2], complex<f32>>
      %s = cog.mul %z, (0.8, 0.6)
      %t = cog.div %s, 1.001
      cog.feedback %z, %t
    }
    """
    found = []
    for target in TARGETS:
        g = graph(text, target)
        g.step(25)
        found.append(g.read("z").tobytes())
    assert found[0] == found[1]


def test_reading_what_has_no_name_says_how_to_name_it(target):
    g = graph(COUNTER, target, "counter")
    with pytest.raises(
        cvm.CallError, match=r'nothing to read named "m": it has n, next; cog.probe "m"'
    ):
        g.read("m")


def test_views_cannot_be_written_and_copies_are_copies(target):
    g = graph(COUNTER, target, "counter")
    view = g.read("n", copy=False)
    with pytest.raises(ValueError):
        view[...] = 1
    copy = g.read("n")
    copy[...] = 9
    assert g.read("n") == 2.75


def test_write_replaces_the_current_value(target):
    g = graph(COUNTER, target, "counter")
    g.step(3)
    g.write("n", 10.0)
    assert (g.read("n"), g.read("next"), g.time()) == (10, 11, 3)
    g.step()
    assert g.read("n") == 11
    with pytest.raises(cvm.CallError, match='no field or sensor "next"'):
        g.write("next", 1.0)
    with pytest.raises(cvm.CallError, match=r"expected .*f32.*got"):
        g.write("n", np.zeros(3, np.float32))
    with pytest.raises(cvm.CallError, match=r"expected .*f32.*got"):
        g.write("n", np.zeros((), np.float64))


def test_state_in_a_file(target, tmp_path):
    g = graph(COUNTER, target, "counter")
    g.step(5)
    g.save(tmp_path / "state.npz")
    other = graph(COUNTER, target, "counter")
    other.load(tmp_path / "state.npz")
    assert (other.time(), other.read("next")) == (5, 8.75)
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(cvm.CallError, match="cannot be read"):
        other.load(tmp_path / "bad.npz")
    np.savez(tmp_path / "other.npz", x=1)
    with pytest.raises(cvm.CallError, match="does not hold the state of @counter"):
        other.load(tmp_path / "other.npz")
    assert other.time() == 5


SENSOR = """
graph @main {
  %x = cog.sensor "x" : !cog.field<[2], f32>
  %total = cog.field "total" init dense<0.0> : !cog.field<[2], f32>
  %sum = cog.add %total, %x
  cog.feedback %total, %sum
  cog.probe "sum" %sum
  cog.actuator "out" %sum
}
"""


def test_sensors_are_fed_and_actuators_lag_a_tick(target):
    g = graph(SENSOR, target)
    seen = []
    g.run(
        3,
        sensors={"x": lambda t: np.full(2, t + 1, np.float32)},
        on_tick=lambda g, t: seen.append((t, g.read("sum")[0], g.read("out")[0])),
    )
    assert seen == [(1, 3, 1), (2, 6, 3), (3, 10, 6)]
    g.reset()
    g.run(3, sensors={"x": [np.ones(2, np.float32), None, np.zeros(2, np.float32)]})
    assert g.read("total").tolist() == [2, 2]


def test_sensors_are_zero_until_written(target):
    g = graph(SENSOR, target)
    assert g.read("sum").tolist() == [0, 0]
    assert g.read("out").tolist() == [0, 0]


def test_a_larger_driver_is_trimmed_with_a_warning(target):
    text = """
    graph @main {
      %a = cog.field "a" init dense<0.0> : !cog.field<[2], f32>
      %b = cog.field "b" init dense<[1.0, 2.0, 3.0]> : !cog.field<[3], f32>
      cog.feedback %a, %b
    }
    """
    with pytest.warns(UserWarning, match="trimmed at the origin"):
        g = graph(text, target)
    g.step()
    assert g.read("a").tolist() == [1, 2]


def test_graphs_call_functions_and_share_a_file(target):
    text = """
    func @double(%x: !cog.field<[2], f32>) {
      %y = cog.mul %x, 2
      return %y
    }
    graph @one {
      %n = cog.field "n" init dense<[1.0, 3.0]> : !cog.field<[2], f32>
      %m = call @double(%n)
      cog.feedback %n, %m
    }
    graph @two {
      %k = cog.field "k" init dense<5.0> : !cog.field<[], f32>
    }
    """
    g, h = graph(text, target, "one"), graph(text, target, "two")
    g.step(3)
    h.step(3)
    assert (g.read("n").tolist(), h.read("k")) == ([8, 24], 5)
    f = cvm.compile(text, entry="double", target=target)
    assert f(np.ones(2, np.float32)).tolist() == [2, 2]


def test_functions_may_be_named_like_what_a_graph_does(target):
    text = """
    func @main.advance(%x: !cog.field<[2], f32>) {
      %y = cog.mul %x, 2
      return %y
    }
    func @main.observe(%x: !cog.field<[2], f32>) {
      %y = call @main.advance(%x)
      return %y
    }
    graph @main {
      %n = cog.field "n" init dense<[1.0, 3.0]> : !cog.field<[2], f32>
      %m = call @main.observe(%n)
      cog.feedback %n, %m
      cog.probe "m" %m
    }
    """
    g = graph(text, target)
    g.step(3)
    assert (g.read("n").tolist(), g.read("m").tolist()) == ([8, 24], [16, 48])


def test_graphs_print_and_pickle(target):
    module = cvm.parse(SENSOR)
    text = cvm.compile(module, target=target).lower("graph")
    assert cvm.compile(cvm.parse(text), target=target).lower("graph") == text
    again = pickle.loads(pickle.dumps(cvm.compile(module, target=target)))
    again.step()
    assert again.read("total").tolist() == [0, 0]


@pytest.mark.parametrize("ticks", [-1, 1.5, "3", True])
def test_a_number_of_ticks_is_checked(target, ticks):
    with pytest.raises(cvm.CallError, match="number of ticks"):
        graph(COUNTER, target, "counter").step(ticks)


def test_a_deep_network_compiles_in_time(target):
    lines = [
        '%v0 = cog.field "v" init dense<1.0> : !cog.field<[4], f32>'.replace(
            "dense<1.0>", "dense<[1.0, 1.0, 1.0, 1.0]>"
        )
    ]
    lines += [
        f"%v{n + 1} = cog.sub %v{n}, %v{n}" if n % 50 == 49 else f"%v{n + 1} = cog.add %v{n}, %v{n}"
        for n in range(500)
    ]
    text = "graph @main {\n" + "\n".join(lines) + '\ncog.probe "out" %v500\n}\n'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert graph(text, target).read("out").tolist() == [0, 0, 0, 0]


FED = """
graph @main {
  %x = cog.sensor "x" : !cog.field<[3], f32>
  %s = cog.field "s" : !cog.field<[3], f32>
  %n = cog.add %x, %s
  cog.feedback %s, %n
}
"""


@pytest.mark.parametrize(
    ("sensors", "message"),
    [
        ({"x": 5}, 'the sensor "x" is fed by an iterable or a function of the time, got int'),
        ([1], "sensors are a dict of names and what feeds them, got list"),
        ({"y": []}, 'no field or sensor "y"'),
        ({"x": [np.zeros(4, np.float32)]}, r"an array of shape \[3\], got shape \[4\]"),
        ({"x": [np.zeros(3)]}, "got tensor<3xf64>"),
        ({"x": ["abc"]}, "expected !cog.field<\\[3\\], f32>, got tensor"),
    ],
)
def test_what_sensors_may_be(sensors, message, target):
    g = graph(FED, target)
    with pytest.raises(cvm.CallError, match=message):
        g.run(2, sensors=sensors)


@pytest.mark.parametrize("ticks", [-1, 1.5, True, "3", None])
def test_a_run_is_a_number_of_ticks(ticks, target):
    with pytest.raises(cvm.CallError, match="expected a number of ticks, 0 or more"):
        graph(FED, target).run(ticks, sensors={"x": []})


def test_names_are_strings(target):
    g = graph(FED, target)
    with pytest.raises(cvm.CallError, match="nothing to read named"):
        g.read(["x"])
    with pytest.raises(cvm.CallError, match="no field or sensor"):
        g.write(["x"], 1)


def test_a_damaged_state_is_rejected_and_changes_nothing(tmp_path):
    g = graph(FED, "cpu")
    g.write("x", [1, 2, 3])
    g.step(2)
    path = tmp_path / "state.npz"
    g.save(path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 61):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with contextlib.suppress(cvm.CallError):
            g.load(path)
        assert g.time() == 2 and g.read("s").tolist() == [2, 4, 6]
    for wrong in (b"", b"garbage", whole[: len(whole) // 2]):
        path.write_bytes(wrong)
        with pytest.raises(cvm.CallError, match=r"it is no \.npz file"):
            g.load(path)
    held = {"state.x": g.read("x"), "state.s": g.read("s")}
    np.savez(path, time=np.int64(-1), **held)
    with pytest.raises(cvm.CallError, match="expected a time of 0 or more ticks, got -1"):
        g.load(path)
    with pytest.raises(cvm.CallError, match="cannot be written"):
        g.save(tmp_path)
    assert g.time() == 2


@pytest.mark.parametrize("shape", ["[6]", "[2, 3]"])
@pytest.mark.parametrize(
    "rest",
    [
        "%y = cog.add %x, %x; cog.feedback %s, %y; cog.feedback %t, %v",
        "%y = cog.add %x, %x; %w = cog.reshape %y SHAPE; cog.feedback %s, %y; cog.feedback %t, %w",
        "%y = cog.reshape %t SIX; cog.feedback %s, %y; cog.feedback %t, %v",
        "%y = cog.add %x, %x; %w = cog.mul %v, %t; cog.feedback %s, %y; cog.feedback %t, %w",
    ],
)
@pytest.mark.parametrize("points", [6, 1])
def test_state_seen_in_another_shape(rest, shape, points):
    """A state driven by a view of another takes the value before the tick, also when storage is
    updated in place.
    """
    shape, six = (shape, "[6]") if points == 6 else ({"[6]": "[1]", "[2, 3]": "[]"}[shape], "[]")
    rest = (
        rest.replace("SHAPE", f"{{shape = {shape}}}")
        .replace("SIX", f"{{shape = {six}}}")
        .replace("; ", "\n")
    )
    text = f"""
    graph @main {{
      %s = cog.field "s" : !cog.field<{six}, f32>
      %t = cog.field "t" init dense<2.0> : !cog.field<{shape}, f32>
      %x = cog.add %s, 1
      %v = cog.reshape %s {{shape = {shape}}}
      {rest}
    }}
    """
    wanted, found = graph(text, "reference"), graph(text, "cpu")
    for tick in range(4):
        for name in ("s", "t"):
            np.testing.assert_array_equal(
                found.read(name), wanted.read(name), f"{name} at {tick}", strict=True
            )
        wanted.step(), found.step()


def test_complex_sum_of_fields_that_a_reduction_chooses_among():
    text = """
    func @main(%x: !cog.field<[30, 301], complex<f32>>) {
      %y = cog.stack %x, %x
      %z = cog.field_reduce_sum %y
      return %z
    }
    """
    assert cvm.compile(text)(np.full((30, 301), 1 + 2j, np.complex64)) == 2 * 30 * 301 * (1 + 2j)


def test_what_is_no_function_no_path_and_no_number_of_the_kind(target):
    g = graph(FED, target)
    with pytest.raises(
        cvm.CallError, match="on_tick is a function of the graph and the time, got int"
    ):
        g.run(2, on_tick=3)
    for path in (None, 1, b"state.npz"):  # 1 would be standard output
        with pytest.raises(cvm.CallError, match="expected its path, got"):
            g.save(path)
        with pytest.raises(cvm.CallError, match="expected its path, got"):
            g.load(path)
    with pytest.raises(cvm.CallError, match=r"cannot be written to .*null"):
        g.save("a\0b")
    counter = graph(COUNTER, target, "counter")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(cvm.CallError, match="numbers that do not fit"):
            counter.write("n", 1j)


def test_a_graph_is_not_called(target):
    counter = graph(COUNTER, target, "counter")
    with pytest.raises(
        cvm.CallError,
        match=r'@counter is a graph, .*: write\("n", value\), step\(ticks\), read\("n"\)',
    ):
        counter(3)
    for wrong in (cvm.compile, cvm.grad):
        with pytest.raises(cvm.TraceError, match="compiled already"):
            wrong(counter)


def test_a_cache_that_is_state_is_not_copied() -> None:
    text = """
    func @append(%state: !cog.field<[N], tensor<4xf32>>, %input: !cog.field<[], tensor<4xf32>>,
                 %place: !cog.field<[], f32>) -> (!cog.field<[N], tensor<4xf32>>, !cog.field<[], f32>) {
      %cache = builtin.view %state {type = tensor<Nx4xf32>}
      %x = builtin.view %input {type = tensor<4xf32>}
      %p = builtin.view %place {type = tensor<f32>}
      %position = theano.elemwise %p {scalar_op = "cast", dtype = i64}
      %new = builtin.scatter %cache, %x, %position {axes = [0]}
      %after = builtin.view %new {type = !cog.field<[N], tensor<4xf32>>}
      %next = cog.add %place, 1
      return %after, %next
    }
    graph @decode {
      %cache = cog.field "cache" : !cog.field<[N], tensor<4xf32>>
      %place = cog.field "place" : !cog.field<[], f32>
      %x = cog.sensor "x" : !cog.field<[], tensor<4xf32>>
      %new, %next = call @append(%cache, %x, %place)
      cog.feedback %cache, %new
      cog.feedback %place, %next
    }
    """
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    for target in ("cpu", "reference", "cuda-sim"):
        g = cvm.compile(text.replace("N", "1000"), entry="decode", target=target)
        for row in rows:
            g.write("x", row)
            g.step()
        found = g.read("cache")
        np.testing.assert_array_equal(found[:3], rows)
        assert not found[3:].any()
        if target == "cpu":
            assert "0..1000" not in g.lower("schedule")
