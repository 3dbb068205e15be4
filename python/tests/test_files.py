"""Tests of files, which need no PyTorch. `.ci/run python` runs them where it is not installed, and where it is."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from html.parser import HTMLParser
from pathlib import Path

import gpumem
from gpumem import _native

MODELS = Path(__file__).resolve().parents[2] / "gpumem-import/tests/models"
VAE = MODELS / "vae_784.pt2"
HAS_TORCH = importlib.util.find_spec("torch") is not None


def run(code, **options):
    """Runs a program of Python, and returns what it prints and its exit code."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, **options)
    return done.stdout + done.stderr, done.returncode


class Balanced(HTMLParser):
    """Checks that each element ends, and gathers the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.links = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.links += [name for name, _ in attrs if name in ("src", "href")] + ([tag] if tag in ("script", "style") else [])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.texts.append(data)


class Files(unittest.TestCase):
    def test_a_file_has_an_answer_for_each_card(self):
        report = gpumem.fit(VAE, batch=64, cards=["t4", "16MiB"])
        small = str(16 << 20)
        self.assertFalse(report)
        self.assertEqual(report.fits, {"t4": True, small: False})
        self.assertEqual(set(report.fits_pytorch), {"t4", small})
        self.assertGreater(report.largest_batch["t4"], 64)
        self.assertGreater(report.largest_batch_pytorch["t4"], 64)
        self.assertTrue(gpumem.fit(str(VAE), cards="t4"))
        self.assertEqual(list(gpumem.fit(VAE, cards="t4, l4").fits), ["t4", "l4"])
        self.assertEqual(gpumem.fit(VAE, batch=64, cards=[16 << 20]).fits, {small: False})

    def test_figures_are_bytes_with_the_keys_of_the_command(self):
        answer = gpumem.fit(VAE, batch=64, cards=["t4"], pytorch_rules="tracker").to_dict()
        [fit], [file] = answer["fits"], answer["files"]
        self.assertEqual((answer["version"], fit["card"], fit["batch"], fit["precision"]), (1, "t4", 64, "F32"))
        self.assertEqual(fit["usable"] - fit["total"], fit["left"])
        parts = {name: size for name, size in file["budget"].items() if name != "arena"}
        self.assertLessEqual(sum(parts.values()), file["budget"]["arena"])
        self.assertEqual(file["budget"]["arena"] + fit["reserve"], fit["total"])
        # Four bytes for each parameter, which the tracker does not round up as an allocator does.
        self.assertEqual(file["pytorch"]["categories"]["parameters"], 4 * file["parameters"])
        # A dict of the caller's own.
        report = gpumem.fit(VAE, cards=["t4"])
        report.to_dict()["fits"].clear()
        self.assertTrue(report)
        json.dumps(answer)

    def test_a_step_that_does_not_fit_has_changes_that_do(self):
        report = gpumem.fit(MODELS / "gpt2.pt2", batch=256, cards=["rtx3060"])
        [fit] = report.to_dict()["fits"]
        self.assertFalse(report)
        self.assertGreater(report.largest_batch["rtx3060"], report.largest_batch_pytorch["rtx3060"])
        self.assertTrue(fit["alternatives"], fit)
        for alternative in fit["alternatives"]:
            self.assertLessEqual(alternative["total"], fit["usable"], alternative)
        self.assertEqual(len(report.changes["rtx3060"]), len(fit["alternatives"]) + 1)
        self.assertEqual(report.changes["rtx3060"][-1], f"batch: {fit['max_batch']}")
        self.assertIn(fit["alternatives"][0]["change"], str(report))
        # A change does what it says: the batch fits, and one sample more does not.
        self.assertTrue(gpumem.fit(MODELS / "gpt2.pt2", batch=fit["max_batch"], cards=["rtx3060"]))
        self.assertFalse(gpumem.fit(MODELS / "gpt2.pt2", batch=fit["max_batch"] + 1, cards=["rtx3060"]))

    def test_a_report_is_a_table_for_people(self):
        report = gpumem.fit(VAE, cards=["t4"])
        self.assertIn("saved and temporary", str(report))
        self.assertIn("GiB", str(report))
        self.assertEqual(repr(report), "<gpumem.Report Vae784: fits>")
        small = gpumem.fit(VAE, cards=["16MiB"])
        self.assertEqual(repr(small), "<gpumem.Report Vae784: does not fit 16.0 MiB>")
        self.assertIn("cards>", repr(gpumem.fit(MODELS / "gpt2.pt2", batch=4096)))

    def test_a_notebook_shows_bars(self):
        page = Balanced(gpumem.fit(MODELS / "gpt2.pt2", batch=256, cards=["rtx3060", "h200"])._repr_html_())
        text = "".join(page.texts)
        self.assertEqual((page.open, page.links), ([], []))
        for part in ["Gpt2", "batch 256", "PyTorch", "gpumem", "rtx3060", "does not fit", "fits", "optimizer state", "It fits with:"]:
            self.assertIn(part, text)
        many = "".join(Balanced(gpumem.fit(VAE)._repr_html_()).texts)
        self.assertIn("more cards", many)

    def test_optimizers_and_precisions_change_the_figures(self):
        def total(**settings):
            return gpumem.fit(MODELS / "gpt2.pt2", batch=4, cards=["h200"], **settings).to_dict()["fits"][0]["total"]

        self.assertLess(total(optimizer="sgd"), total())
        self.assertLess(total(precision="bf16"), total(precision="bf16-mixed"))
        self.assertLess(total(checkpoint="budget(0.3)"), total())
        self.assertEqual(total(headroom="1GiB"), total(headroom=1 << 30))

        class SGD:
            """A class, as those of `torch.optim` are."""

        self.assertEqual(total(optimizer=SGD), total(optimizer="sgd"))
        with self.assertRaisesRegex(TypeError, "optimizer: give its name"):
            total(optimizer=SGD())

    def test_wrong_values_are_told_with_what_was_meant(self):
        for settings, said in [
            ({"cards": ["t4", "rtx3061"]}, 'cards: "rtx3061": did you mean rtx3060? `gpumem.cards()` lists them'),
            ({"cards": ["11.5"]}, 'cards: "11.5": the unit is missing'),
            ({"cards": []}, "cards: the list is empty"),
            ({"optimizer": "adamm"}, "optimizer: no optimizer is called adamm; did you mean Adam"),
            ({"precision": "bf61"}, "precision: did you mean Bf16? write F32, Bf16"),
            ({"batch": 0}, "batch: write a number of samples"),
            ({"batch": -1}, "batch: write a number of samples"),
            ({"checkpoint": "most"}, "checkpoint: write None, Norms"),
            ({"headroom": "lots"}, "headroom: "),
            ({"attention": "flash"}, "attention: "),
            ({"pytorch_update": "forloop"}, "pytorch_update: did you mean for-loop?"),
            ({"pytorch_rules": "cpu"}, "pytorch_rules: "),
        ]:
            with self.subTest(settings=settings), self.assertRaises(ValueError) as raised:
                gpumem.fit(VAE, **settings)
            self.assertTrue(str(raised.exception).startswith(said), raised.exception)

    def test_files_that_are_no_models_are_refused(self):
        with self.assertRaisesRegex(FileNotFoundError, "model: there is no file none.pt2"):
            gpumem.fit("none.pt2")
        with self.assertRaisesRegex(ValueError, "is no file of `torch.export.save`"):
            gpumem.fit(__file__)
        with self.assertRaisesRegex(TypeError, "example_inputs: a file has its own"):
            gpumem.fit(VAE, [1])
        broken = Path(os.environ.get("TMPDIR", "/tmp")) / f"broken-{os.getpid()}.pt2"
        broken.write_bytes(b"PK damaged")
        try:
            with self.assertRaises(gpumem.Error) as raised:
                gpumem.fit(broken)
            self.assertIn(str(broken), str(raised.exception))
        finally:
            broken.unlink()

    def test_cards_have_their_facts(self):
        cards = {card["slug"]: card for card in gpumem.cards()}
        self.assertGreater(len(cards), 100)
        self.assertEqual(cards["t4"]["compute_capability"], [7, 5])
        self.assertGreater(cards["t4"]["usable"], 14 << 30)

    def test_the_version_is_that_of_the_package(self):
        from importlib.metadata import version

        self.assertEqual(gpumem.__version__, version("gpumem"))


class Imports(unittest.TestCase):
    def test_torch_is_not_imported_before_it_is_needed(self):
        code = f"import sys, gpumem; gpumem.cards(); gpumem.fit({str(VAE)!r}, cards=['t4']); print('torch' in sys.modules)"
        self.assertEqual(run(code), ("False\n", 0))

    @unittest.skipIf(HAS_TORCH, "PyTorch is installed")
    def test_a_module_without_torch_says_what_to_install(self):
        with self.assertRaisesRegex(ImportError, "modules need PyTorch, which is not installed: `pip install torch`"):
            gpumem.fit(object(), None)


class Running(unittest.TestCase):
    def test_other_threads_run_while_a_model_is_planned(self):
        turns, stop = [0], threading.Event()

        def count():
            while not stop.is_set():
                turns[0] += 1
                time.sleep(0.001)

        counter = threading.Thread(target=count)
        counter.start()
        try:
            before = turns[0]
            _native._work(0.5)
            self.assertGreater(turns[0] - before, 20)
        finally:
            stop.set()
            counter.join()

    @unittest.skipIf(os.name == "nt", "signals of POSIX")
    def test_an_interrupt_ends_a_long_plan(self):
        # A process in the background of a script ignores Ctrl-C, and so would its children.
        code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        code += "from gpumem import _native; print('begun', flush=True); _native._work(100)"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            self.assertEqual(child.stdout.readline(), "begun\n")
            time.sleep(0.3)
            begun = time.monotonic()
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=30)
            self.assertIn("KeyboardInterrupt", errors)
            self.assertLess(time.monotonic() - begun, 20)
        finally:
            child.kill()

    def test_a_bug_is_an_error_that_asks_for_a_report(self):
        with self.assertRaises(gpumem.Error) as raised:
            _native._work(-1.0)
        said = str(raised.exception)
        self.assertTrue(said.startswith("this is a bug of gpumem: "), said)
        self.assertIn("lib.rs:", said)
        self.assertIn("please report it", said)
        # The package still works, and nothing is printed.
        self.assertTrue(gpumem.fit(VAE, cards=["t4"]))
        code = "from gpumem import _native\ntry: _native._work(-1.0)\nexcept _native.Error: print('an error')"
        self.assertEqual(run(code), ("an error\n", 0))


if __name__ == "__main__":
    unittest.main()
