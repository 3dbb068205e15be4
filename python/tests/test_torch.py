"""Tests of modules, with PyTorch. They are left out if it is not installed, unless `GPUMEM_REQUIRE_TORCH` is set."""

import contextlib
import importlib.util
import io
import os
import tempfile
import threading
import traceback
import unittest
import warnings
from pathlib import Path

import gpumem
from gpumem import _native

if importlib.util.find_spec("torch") is None and "GPUMEM_REQUIRE_TORCH" not in os.environ:
    raise unittest.SkipTest("PyTorch is not installed")

import models
import torch


def adamw(parameters):
    return torch.optim.AdamW(parameters, foreach=False)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, foreach=False)


@contextlib.contextmanager
def default_dtype(dtype):
    """Makes tensors in this format."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def peak(make, inputs, optimizer, dtype=torch.float32):
    """Returns the peak of the second training step, in bytes, as PyTorch's tracker counts it on tensors without data."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode(), default_dtype(dtype):
        model = make()
        updates = optimizer(model.parameters())
        x = inputs()
        # A class for each prediction: of a sample, or of each word of it.
        y = torch.zeros(x.shape if x.dtype == torch.long else x.shape[:1], dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(model, updates, x, y)
        with tracker:
            for _ in range(2):
                outputs = model(x)
                torch.nn.functional.cross_entropy(outputs.flatten(0, -2), y.flatten()).backward()
                updates.step()
                updates.zero_grad()
                # The tracker knows each module once. Its peak stays.
                tracker.reset_mod_stats()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


class Modules(unittest.TestCase):
    def test_a_module_has_an_answer(self):
        model = models.Convolutional()
        report = gpumem.fit(model, torch.randn(2, 3, 64, 64), batch=64, cards=["t4"])
        self.assertTrue(report)
        [file] = report.to_dict()["files"]
        self.assertEqual((file["name"], file["file"]), ("Convolutional", "Convolutional"))
        self.assertEqual(file["parameters"], sum(parameter.numel() for parameter in model.parameters()))
        self.assertEqual(file["not_expressible"], [])

    def test_the_answer_is_that_of_the_exported_file(self):
        model = models.Convolutional().train()
        example = torch.randn(2, 3, 64, 64)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "Convolutional.pt2"
            torch.export.save(torch.export.export(model, (example,)), path)
            of_file = gpumem.fit(path, batch=64, cards=["t4"]).to_dict()
        of_module = gpumem.fit(model, example, batch=64, cards=["t4"]).to_dict()
        for answer in (of_file, of_module):
            for row in answer["fits"] + answer["files"]:
                del row["file"]
        self.assertEqual(of_module, of_file)

    def test_pytorchs_figures_are_those_of_its_tracker(self):
        for make, inputs, optimizer, dtype in [
            (models.Mlp, lambda: torch.randn(32, 256), adamw, torch.float32),
            (models.Convolutional, lambda: torch.randn(32, 3, 64, 64), adamw, torch.float32),
            (models.Convolutional, lambda: torch.randn(32, 3, 64, 64), adamw, torch.bfloat16),
            (models.Convolutional, lambda: torch.randn(32, 3, 64, 64), sgd, torch.float32),
            (models.Tied, lambda: torch.randint(0, 1000, (32, 128)), adamw, torch.float32),
            (models.Tied, lambda: torch.randint(0, 1000, (32, 128)), adamw, torch.bfloat16),
        ]:
            with self.subTest(model=make.__name__, optimizer=optimizer.__name__, dtype=dtype):
                expected = peak(make, inputs, optimizer, dtype)
                settings = {"optimizer": optimizer.__name__, "precision": dtype, "pytorch_rules": "tracker"}
                report = gpumem.fit(make(), inputs()[:2], batch=32, cards=["t4"], **settings)
                found = report.to_dict()["files"][0]["pytorch"]["allocated"]
                self.assertLess(abs(found / expected - 1), 1e-3, f"{found} beside {expected}")

    def test_one_sample_is_taken_twice(self):
        model = models.Convolutional()
        one = gpumem.fit(model, torch.randn(1, 3, 64, 64), cards=["t4"])
        two = gpumem.fit(model, torch.randn(2, 3, 64, 64), cards=["t4"])
        seven = gpumem.fit(model, torch.randn(7, 3, 64, 64), cards=["t4"])
        self.assertEqual(one.to_dict(), two.to_dict())
        self.assertEqual(seven.to_dict(), two.to_dict())

    def test_examples_are_one_tensor_or_several_or_named(self):
        model, x = models.Mlp(), torch.randn(2, 256)
        answers = [gpumem.fit(model, example, cards=["t4"]).to_dict() for example in (x, (x,), [x], {"x": x})]
        self.assertTrue(all(answer == answers[0] for answer in answers))
        for nothing in [(), {}, 3]:
            with self.assertRaisesRegex(TypeError, "example_inputs: give the tensors"):
                gpumem.fit(model, nothing)
        with self.assertRaisesRegex(TypeError, "example_inputs: give the tensors"):
            gpumem.fit(model)
        with self.assertRaisesRegex(ValueError, "example_inputs: the batch is empty"):
            gpumem.fit(model, torch.randn(0, 256))

    def test_tied_weights_count_once(self):
        model = models.Tied()
        tokens = torch.randint(0, 1000, (2, 16))
        [file] = gpumem.fit(model, tokens, cards=["t4"], pytorch_rules="tracker").to_dict()["files"]
        self.assertEqual(file["parameters"], sum(parameter.numel() for parameter in model.parameters()))
        self.assertEqual(file["pytorch"]["categories"]["parameters"], 4 * file["parameters"])

    def test_a_module_is_left_as_it_was(self):
        model = models.Convolutional().eval()
        model.layers[1].train()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        self.assertTrue(gpumem.fit(model, torch.randn(2, 3, 64, 64), cards=["t4"]))
        self.assertEqual((model.training, model.layers[0].training, model.layers[1].training), (False, False, True))
        self.assertTrue(all(torch.equal(value, before[key]) for key, value in model.state_dict().items()))
        with self.assertRaises(gpumem.ExportError):
            gpumem.fit(models.Branching().eval(), torch.randn(2, 4))

    def test_a_module_without_memory_will_do(self):
        with torch.device("meta"):
            model = models.Mlp(width=1 << 22)
        report = gpumem.fit(model, torch.randn(2, 256, device="meta"), cards=["t4"])
        self.assertGreater(report.to_dict()["files"][0]["parameters"], 1 << 30)
        self.assertFalse(report)

    def test_wrappers_are_taken_off(self):
        model, x = models.Mlp(), torch.randn(2, 256)
        plain = gpumem.fit(model, x, cards=["t4"]).to_dict()
        for wrapped in (torch.compile(model), torch.nn.DataParallel(model), torch.compile(torch.nn.DataParallel(model))):
            self.assertEqual(gpumem.fit(wrapped, x, cards=["t4"]).to_dict(), plain)

    def test_precisions_are_dtypes_too(self):
        model, x = models.Mlp(), torch.randn(2, 256)

        def of(precision):
            return gpumem.fit(model, x, precision=precision, cards=["t4"]).to_dict()

        self.assertEqual(of(torch.bfloat16), of("bf16"))
        self.assertEqual(of(None), of("f32"))
        # A module that is in a format already needs no word of it, and its example may have another one.
        converted = gpumem.fit(models.Mlp().bfloat16(), x, cards=["t4"]).to_dict()
        self.assertEqual(converted, of("bf16"))
        mixed = of("bf16-mixed")["files"][0]["pytorch"]
        self.assertNotEqual(mixed["allocated"], of(torch.float32)["files"][0]["pytorch"]["allocated"])

    def test_operations_that_are_missing_are_named(self):
        report = gpumem.fit(models.Unknown(), torch.randn(2, 16), cards=["t4"])
        self.assertFalse(report)
        self.assertEqual(report.missing, ["linalg_qr"])
        self.assertEqual(report.fits, {})
        self.assertEqual(report.fits_pytorch, {"t4": True})
        self.assertIn("no answer, 1 kind of operation is missing", repr(report))
        page = report._repr_html_()
        self.assertIn("gpumem has no answer: it lacks linalg_qr", page)
        # The memory of the card is known without gpumem's answer.
        usable = next(card["usable"] for card in gpumem.cards() if card["slug"] == "t4")
        self.assertIn(_native.bytes(usable), page)


class Refused(unittest.TestCase):
    def test_a_model_that_is_exported_and_not_planned_has_its_name(self):
        with self.assertRaisesRegex(gpumem.Error, "^DependsOnData: the size `index` depends on data"):
            gpumem.fit(models.DependsOnData(), torch.randn(2, 8))

    def test_a_branch_is_told_with_its_line(self):
        with self.assertRaises(gpumem.ExportError) as raised:
            gpumem.fit(models.Branching(), torch.randn(2, 4))
        error, said = raised.exception, str(raised.exception)
        number = next(at for at, line in enumerate(Path(models.__file__).read_text().splitlines(), 1) if "# the branch" in line)
        self.assertEqual((error.filename, error.lineno, error.function), (models.__file__, number, "forward"))
        self.assertTrue(said.startswith("PyTorch cannot export Branching: "), said)
        self.assertIn(f"at {models.__file__}:{number}, in forward: if x.sum() > 0:", said)
        self.assertIn("use `torch.where` or `torch.cond`", said)
        self.assertIsNotNone(error.__cause__)
        self.assertIsInstance(error, gpumem.Error)
        self.assertEqual("".join(traceback.format_exception_only(type(error), error)), f"gpumem.ExportError: {said}\n")

    def test_a_wrong_shape_is_told_with_the_line_of_the_module(self):
        with self.assertRaises(gpumem.ExportError) as raised:
            gpumem.fit(models.WrongShape(), torch.randn(2, 999))
        error = raised.exception
        self.assertEqual((error.filename, error.function), (models.__file__, "forward"))
        self.assertIn("self.first(x)", error.line)

    def test_arguments_that_forward_does_not_have(self):
        with self.assertRaises(gpumem.ExportError) as raised:
            gpumem.fit(models.Mlp(), (torch.randn(2, 256), torch.randn(2, 256)))
        self.assertIn("argument", str(raised.exception))
        self.assertIsNone(raised.exception.filename)

    def test_modules_that_cannot_be_copied_or_exported_say_what_to_give(self):
        x = torch.randn(2, 8)
        with self.assertRaisesRegex(gpumem.ExportError, "(?s)deepcopy.*convert it with `model.to"):
            gpumem.fit(models.Computed(), x, precision="bf16")
        # Without another format there is nothing to copy.
        self.assertTrue(gpumem.fit(models.Computed(), x, cards=["t4"]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted = torch.jit.script(torch.nn.Linear(8, 8))
        with self.assertRaisesRegex(gpumem.ExportError, "give the module from which `torch.jit` made it"):
            gpumem.fit(scripted, x)

    def test_an_error_prints_nothing_by_itself(self):
        from gpumem._export import _Muted

        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(gpumem.ExportError):
            gpumem.fit(models.Branching(), torch.randn(2, 4))
        self.assertEqual(errors.getvalue(), "")
        # Other threads still write.
        muted = _Muted(errors)
        muted.write("mine")
        other = threading.Thread(target=muted.write, args=("another's",))
        other.start()
        other.join()
        self.assertEqual((errors.getvalue(), _Muted(None).write("text")), ("another's", 4))

    def test_settings_are_read_before_the_export(self):
        with self.assertRaisesRegex(ValueError, "cards: \"rtx3061\": did you mean rtx3060"):
            gpumem.fit(models.Branching(), torch.randn(2, 4), cards=["rtx3061"])

    def test_what_is_no_module(self):
        with self.assertRaisesRegex(TypeError, "model: a int is neither"):
            gpumem.fit(3, torch.randn(2, 4))


if __name__ == "__main__":
    unittest.main()
