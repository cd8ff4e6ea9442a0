"""The GPU benchmark without a GPU: which layers it draws, what it reports, and how it takes its arguments."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "gpu"))

import bench
import kernels
import random_layers
from problems import Error, Problem, float64_result
from report import ALL, behind, behind_lines, summary_of, summary_table
from timing import BRIEF, FULL, Effort

TABLE = Path(__file__).parents[2] / "bench" / "table.py"


def reference(problem, x, w):
    conv = getattr(torch.nn.functional, f"conv_transpose{problem.dims}d")
    p = problem
    return conv(x, w, None, p.stride, p.padding, p.output_padding, p.groups, p.dilation)


# ---- Random layers ------------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_layers_and_another_others():
    layers = random_layers.random_layers(50, 7)
    assert layers == random_layers.random_layers(50, 7)
    assert layers[:20] == random_layers.random_layers(20, 7)
    assert layers != random_layers.random_layers(50, 8)
    assert len({layer.name for layer in layers}) == 50


def test_pytorch_takes_every_layer_and_gives_outputs_of_that_shape():
    for p in random_layers.random_layers(500, 1):
        x = torch.empty(p.batch, p.in_channels, *p.spatial, device="meta")
        assert tuple(reference(p, x, torch.empty(p.weight_shape, device="meta")).shape) == p.output_shape, p


def test_layers_keep_to_the_bounds():
    for p in random_layers.random_layers(500, 2):
        assert 1e7 <= p.flops <= 3e11, p
        x, w, y = (
            p.batch * p.in_channels * math.prod(p.spatial),
            math.prod(p.weight_shape),
            math.prod(p.output_shape),
        )
        assert 4 * max(x, w, y) <= 1.5e9, p
        assert p.in_channels % p.groups == p.out_channels % p.groups == 0, p


def test_the_mix_is_the_documented_one():
    count = 4000
    layers = random_layers.random_layers(count, 3)
    shares = {kind.__name__: share for kind, share in random_layers.KINDS.items()}
    assert sum(shares.values()) == 100
    documented = re.findall(r"^\| (\w+) +\| +(\d+) %", random_layers.__doc__, re.MULTILINE)
    assert {kind: int(share) for kind, share in documented} == shares
    for kind, share in shares.items():
        found = sum(layer.name.startswith(f"{kind}-") for layer in layers)
        deviation = math.sqrt(count * share / 100)
        assert abs(found - count * share / 100) < 5 * deviation, kind


def test_kinds_are_what_they_are_called():
    by_kind = {}
    for layer in random_layers.random_layers(3000, 4):
        by_kind.setdefault(layer.name.rsplit("-", 1)[0], []).append(layer)
    for p in by_kind["vocoder"]:
        assert p.dims == 1
        assert 2 <= p.stride[0] <= 10
        assert p.stride[0] <= p.kernel[0] <= 2 * p.stride[0] + 1
        assert min(p.in_channels, p.out_channels) >= 16
        assert max(p.in_channels, p.out_channels) <= 1024
        assert p.padding == [0] or p.output_shape[2] == p.stride[0] * p.spatial[0]
    for p in by_kind["unet"]:
        assert p.kernel == p.stride
        assert p.kernel[-1] == 2
    for p in by_kind["gan"]:
        assert p.spatial == [1, 1] or list(p.output_shape[2:]) == [2 * size for size in p.spatial]
        assert max(p.spatial) <= 256
    for p in by_kind["superres"]:
        assert p.out_channels <= 12
        assert list(p.output_shape[2:]) == [p.stride[0] * size for size in p.spatial]
    assert all(set(p.stride) == {1} for p in by_kind["stride1"])
    assert all(min(p.dilation) >= 2 for p in by_kind["dilated"])
    assert all(p.groups == p.in_channels == p.out_channels for p in by_kind["depthwise"])
    assert all(p.groups >= 2 for p in by_kind["grouped"])
    for kind in ("stride1", "dilated", "depthwise", "grouped", "odd"):
        assert {p.dims for p in by_kind[kind]} == {1, 2, 3}


def test_sizes_are_log_uniform_and_reach_both_ends():
    draw = random_layers.Draw(1)
    sizes = [draw.size(1, 1024) for _ in range(20_000)]
    assert (min(sizes), max(sizes)) == (1, 1024)
    for low in (4, 32, 256):  # every octave has a tenth of them
        assert sum(low <= size < 2 * low for size in sizes) / len(sizes) == pytest.approx(0.1, abs=0.015)


def test_float64_results_are_pytorchs():
    smallest = sorted(random_layers.random_layers(300, 5), key=lambda p: p.flops)[:12]
    for p in [*smallest, *(next(q for q in smallest if q.dims == dims) for dims in (1, 2))]:
        x = torch.rand(p.batch, p.in_channels, *p.spatial, dtype=torch.float64)
        w = torch.rand(p.weight_shape, dtype=torch.float64)
        torch.testing.assert_close(float64_result(p, x, w), reference(p, x, w), rtol=1e-10, atol=1e-10)


def test_a_layer_is_written_as_the_library_writes_it():
    p = Problem("a", 2, 16, 32, 64, 2, [5, 7], [3, 4], [2, 1], [1, 0], [1, 0], [1, 2])
    assert str(p) == "n16 g2 ci32 co64 k3x4 s2x1 p1x0 op1x0 d1x2 5x7->10x13"


# ---- Reports ------------------------------------------------------------------------------------------------


def row(name, tconv, default, tuned=None, last=None, **others):
    """Times in ms; `last`: of both sides."""
    result = {"name": name, "precision": "tf32", "right": True, "layer": f"the {name}", "tconv_ms": tconv}
    result |= {"pytorch_ms": default, **others}
    if tuned:
        result["pytorch_tuned_ms"] = tuned
        result["pytorch_best_ms"] = min(default, tuned, last[1] if last else math.inf)
    if last:
        result["tconv_last_ms"], result["pytorch_tuned_last_ms"] = last
    return result


ROWS = [
    row("vocoder-0", 1, 2, 2),
    row("unet-1", 2, 3, 3, last=(1, 1.5)),  # behind the best, which is channels_last
    row("unet-2", 1, 4, 3, last=(4, 2)),  # ahead, but behind on channels_last tensors
    row("gan-3", 4, 8, 1, last=(1, 3)),
    row("odd-4", 1, 500),  # too slow to be autotuned
    {"name": "odd-5", "precision": "tf32", "right": False, "failed": "no memory", "layer": "the odd-5"},
]


def test_a_summary_has_means_and_shares():
    summary = summary_of(ROWS)
    of_all = summary[ALL]
    assert of_all["layers"] == 6
    assert of_all["default"]["mean"] == pytest.approx((2 * 1.5 * 4 * 2 * 500) ** (1 / 5))
    assert of_all["tuned"]["mean"] == pytest.approx((2 * 1.5 * 3 * 0.25) ** (1 / 4))
    assert of_all["best"]["mean"] == pytest.approx((2 * 0.75 * 2 * 0.25) ** (1 / 4))
    assert of_all["last"]["mean"] == pytest.approx((1.5 * 0.5 * 3) ** (1 / 3))
    assert [of_all[name]["ahead"] for name in ("default", "tuned", "best")] == [1, 0.75, 0.5]
    assert of_all["last"]["ahead"] == pytest.approx(2 / 3)
    assert of_all["best"]["least"] == 0.25
    assert summary["odd"] == {"layers": 2, "default": summary["odd"]["default"]}
    assert "last" not in summary["vocoder"]
    assert list(summary) == ["odd", "gan", "unet", "vocoder", ALL]  # worst first, unknown before
    assert json.loads(json.dumps(summary)) == summary


def test_a_summary_of_nothing_is_empty():
    assert summary_of([]) == {ALL: {"layers": 0}}
    assert len(summary_table(summary_of([]), "tf32").splitlines()) == 2


def test_layers_behind_come_worst_first():
    assert [r["name"] for r in behind(ROWS, "best")] == ["gan-3", "unet-1"]
    assert [r["name"] for r in behind(ROWS, "last")] == ["unet-2"]
    known = [r | {"kernel": "panel_gemm", "kernel_last": "other"} for r in ROWS]
    worst, second = behind_lines(known, "best", most=5)
    assert worst.split() == ["0.25", "4.0000", "1.0000", "gan-3", "the", "gan-3", "panel_gemm"]
    assert second.split()[0] == "0.75"
    assert behind_lines(known, "last", most=5)[0].endswith("other")
    assert behind_lines(ROWS, "best", most=1)[1] == "... and 1 more"


def test_a_table_of_kinds_has_a_line_for_each():
    lines = summary_table(summary_of(ROWS), "tf32").splitlines()
    assert lines[0].split() == [
        "tf32",
        "layers",
        "default",
        "ahead",
        "tuned",
        "ahead",
        "best",
        "ahead",
        "last",
        "ahead",
    ]
    assert [line.split()[0] for line in lines[1:]] == ["odd", "gan", "unet", "vocoder", ALL]
    assert lines[-1].split()[-4:] == ["0.93", "50%", "1.31", "67%"]


def test_kernels_are_read_from_the_librarys_lines():
    lines = (
        "a warning\n"
        "tconv,cuda,forward,panel_gemm_tf32_2x64_1.1.128_t1x2,f32,channels_first,n1 g1 ci2 co4 k3 s1,8->10,1 ms\n"
        "tconv,cuda,forward,direct,f16,channels_last,n1 g1 ci2 co4 k3x3 s1x1 p0x0 d1x1,8x8->10x10,0.1 ms\n"
    )
    assert kernels.names_in(lines) == ["panel_gemm_tf32_2x64_1.1.128_t1x2", "direct"]
    assert kernels.kernel_names(Path("nowhere"), []) == []


def test_a_library_that_cannot_be_asked_is_an_error():
    with pytest.raises(RuntimeError, match="asking for kernels"):
        kernels.kernel_names(Path("nowhere.so"), [(random_layers.random_layers(1, 1)[0], "tf32", False)])


# ---- The program --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--random", "-1"], "--random must not be negative, got -1"),
        (["--random", "3", "--precisions", "tf32,int8"], "no precision 'int8'"),
        (["--random", "3", "--seed", "1", "kb64"], "no problem 'kb64'; known are "),
        (["nothing"], "no problem 'nothing'; known are kb57"),
        (["--random", "many"], "invalid int value: 'many'"),
    ],
)
def test_wrong_arguments_are_refused(monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", ["bench.py", "--library", "nowhere.so", *arguments])
    with pytest.raises(SystemExit) as refused:
        bench.main()
    assert message in f"{capsys.readouterr().err}{refused.value}"


@pytest.fixture
def timed(monkeypatch):
    """Times of both sides, instead of a GPU's: [last][tuned] of PyTorch, [last] of tconv, in ms."""
    times = {
        "tconv": {False: 1.0, True: 2.0},
        "pytorch": {(False, False): 4.0, (False, True): 3.0, (True, True): 0.5},
    }
    taken = []

    def tconv_side(layer, data, last, want, effort):
        return Error(1e-4, 1e-4), times["tconv"][last], 0.1

    def pytorch_side(data, last, tuned, want, effort):
        taken.append((last, tuned))
        return Error(2e-4, 2e-4), times["pytorch"][last, tuned], 0.15

    monkeypatch.setattr(bench, "measure_tconv", tconv_side)
    monkeypatch.setattr(bench, "measure_pytorch", pytorch_side)
    return taken


class FakeData:
    def __init__(self, problem, dtype, seed):
        self.x, self.w = torch.empty(1, dtype=dtype), None


RATES = {"copy_TBs": 4.0, "gemm_tf32": 400.0, "gemm_fp16": 800.0}


def measured(dims, effort):
    p = Problem("a-0", dims, 1, 1, 1, 1, [8] * dims, [2] * dims, [2] * dims, [0] * dims, [0] * dims, [1] * dims)
    layers = {False: None, True: None}
    return bench.measure(p, "tf32", layers, FakeData(p, torch.float32, 1), None, RATES, effort)


def test_a_row_has_the_best_of_all_layouts(timed):
    got = measured(2, BRIEF)
    assert (got["tconv_ms"], got["pytorch_tuned_ms"], got["pytorch_best_ms"]) == (1, 3, 0.5)
    assert (got["tconv_last_ms"], got["pytorch_tuned_last_ms"], got["tconv_best_ms"]) == (2, 0.5, 1)
    assert got["right"]
    got = measured(1, FULL)
    assert got["pytorch_best_ms"] == 3
    assert "tconv_last_ms" not in got


def test_a_layer_that_took_too_long_is_not_autotuned_and_has_no_best(timed):
    got = measured(2, Effort(tuning_s=0))
    assert timed == [(False, False)]
    assert "pytorch_best_ms" not in got
    assert "pytorch_tuned_ms" not in got
    assert (got["tconv_ms"], got["pytorch_ms"], got["tconv_last_ms"], got["right"]) == (1, 4, 2, True)


@pytest.fixture
def whole_run(monkeypatch, timed):
    """main() with everything replaced that takes a GPU. The layer number 2 fails."""

    class FakeLibrary:
        def __init__(self, path):
            pass

        def version(self):
            return "0"

    def want(problem, x, w):
        if problem.name.endswith("-2"):
            raise RuntimeError("out of memory\nand more")

    def names(library, questions):
        return [f"kernel of {problem.name} {precision} {last}" for problem, precision, last in questions]

    def plans(library, problems, precisions):
        return {(p.name, q): {False: None, True: None} for p in problems for q in precisions}

    monkeypatch.setattr(bench, "Library", FakeLibrary)
    monkeypatch.setattr(bench, "plan_all", plans)
    monkeypatch.setattr(bench, "ceilings", lambda precisions: RATES)
    monkeypatch.setattr(bench, "Data", FakeData)
    monkeypatch.setattr(bench, "float64_result", want)
    monkeypatch.setattr(bench, "kernel_names", names)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench.py", "--library", "nowhere.so", *arguments])
        return bench.main()

    return run


def printed_table(path):
    command = [sys.executable, str(TABLE), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_random_layers_end_with_a_summary_and_a_record(whole_run, capsys, tmp_path):
    path = tmp_path / "random.json"
    assert whole_run("--random", "9", "--seed", "3", "--precisions", "tf32,fp16", "--json", str(path)) == 1
    record = json.loads(path.read_text())
    assert record["random"] == 9
    assert record["seed"] == 3
    assert len(record["rows"]) == 18
    failed = [r for r in record["rows"] if "failed" in r]
    assert [(r["failed"], r["precision"]) for r in failed] == [
        ("out of memory", "tf32"),
        ("out of memory", "fp16"),
    ]
    assert record["summary"]["fp16"] == summary_of([r for r in record["rows"] if r["precision"] == "fp16"])
    slower = behind(record["rows"], "best")
    assert slower  # images: PyTorch takes half as long on channels_last tensors
    assert slower[0]["kernel"] == f"kernel of {slower[0]['name']} {slower[0]['precision']} False"
    assert slower[0]["kernel_last"] == f"kernel of {slower[0]['name']} {slower[0]['precision']} True"
    output = capsys.readouterr().out
    assert f"{slower[0]['layer']}  {slower[0]['kernel']}" in output
    assert f"WRONG: {failed[0]['name']} tf32, {failed[0]['name']} fp16" in output

    markdown = printed_table(path).splitlines()
    heads = [line for line in markdown if line.startswith(("| tf32 ", "| fp16 "))]
    assert len(heads) == 2
    for start in (markdown.index(head) for head in heads):
        lines = [line.count("|") for line in markdown[start:] if line][: 3 + len(record["summary"]["tf32"]) - 1]
        assert set(lines) == {11}
    assert any(slower[0]["layer"] in line and slower[0]["kernel"] in line for line in markdown)


def test_names_choose_among_random_layers(whole_run, capsys, tmp_path):
    chosen = random_layers.random_layers(5, 3)[4].name
    path = tmp_path / "one.json"
    assert whole_run("--random", "5", "--seed", "3", "--precisions", "tf32", "--json", str(path), chosen) == 0
    assert [r["name"] for r in json.loads(path.read_text())["rows"]] == [chosen]
    assert "1 results" in capsys.readouterr().out


def test_no_layer_begins_after_the_time_is_up(whole_run, capsys):
    assert whole_run("--random", "5", "--seed", "3", "--precisions", "tf32", "--seconds", "0") == 0
    captured = capsys.readouterr()
    assert "0 of 5 layers fit into 0 s" in captured.err
    assert "0 results" in captured.out


def test_listed_problems_are_reported_as_before(whole_run, capsys, tmp_path):
    path = tmp_path / "gpu.json"
    assert whole_run("kb64", "unet_up1", "--precisions", "tf32", "--json", str(path)) == 0
    record = json.loads(path.read_text())
    assert "random" not in record
    assert set(record["means"]["tf32"]) == {"kb*", "all"}
    assert record["means"]["tf32"]["all"]["best"] == pytest.approx(math.sqrt(3 * 0.5))
    assert "geometric mean, all:" in capsys.readouterr().out
    assert "| kb64 | 1.000 ms | 4.000 ms | 3.000 ms |" in printed_table(path)
