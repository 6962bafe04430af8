"""Undo each fix of a weakness in a copy of the source, and see that its test fails.

python tests/faults/without_fixes.py [WORD ...] (a quarter of an hour; with words, the entries that contain one)

Each entry names what was broken, a file, the text of the fix, what the text becomes without it, and the tests. A test
waits for PATIENCE seconds for what never comes without the fix, and must fail; one that passes, or does not end, does
not notice. Writes benchmarks/results/without_fixes.{json,md}.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "without_fixes.json"
PATIENCE, TIMEOUT = 60, 1200  # seconds
BATCHING, HTTP = "tests/server/test_batching.py", "tests/server/test_http_server.py"
FIXES = [
    (1, "a rate of 1e-300 counts down one by one", "conformal/calibration.py",
     "    if count > 1 and 1 / (count - 1) <= rate:", "    while count > 1 and 1 / (count - 1) <= rate:",
     "tests/conformal/test_calibration.py::test_tiny_rates_are_answered_at_once"),
    (1, "one request with such a rate hangs the service", "conformal/calibration.py",
     "    if count > 1 and 1 / (count - 1) <= rate:", "    while count > 1 and 1 / (count - 1) <= rate:",
     "tests/server/test_service.py::test_tiny_rates_are_422_at_once"),
    (2, "no pixel budget for a request", "server/inputs.py", "    if pixels > limits.pixels:", "    if False:",
     "tests/server/test_inputs.py::test_images_with_too_many_pixels_together_are_413_before_one_is_decoded"),
    (2, "images are decoded in the thread of the model", "server/batching.py",
     "isinstance(bundle.preprocessing, ImageInputs)", "False",
     f"{BATCHING}::test_others_are_answered_while_a_request_is_decoded"),
    (2, "abandoned requests are decoded to their end", "server/inputs.py",
     "        if cancelled():", "        if False:",
     f"{BATCHING}::test_a_request_that_nobody_waits_for_is_not_decoded_to_its_end"),
    (2, "a stalled service says that it is ready", "server/service.py", " and not batcher.is_stalled", "",
     "tests/server/test_app.py::test_a_service_that_answers_nothing_is_not_ready"),
    (2, "a full queue says that it is ready", "server/service.py", " and batcher.queued < self.limits.queue", "",
     "tests/server/test_app.py::test_a_service_with_a_full_queue_is_not_ready"),
    (3, "no limit on headers", "server/http_server.py", "HEAD = 65_536", "HEAD = 2**40",
     f"{HTTP}::test_headers_that_are_too_large_are_431"),
    (4, "accepted requests are not awaited at shutdown", "server/http_server.py",
     "        end = time.monotonic() + (self.config.timeout_graceful_shutdown or 0)", "        end = 0.0",
     f"{HTTP}::test_a_stop_answers_what_was_taken"),
    (4, "new requests are served at shutdown", "server/app.py",
     "        if self.service.is_stopping:", "        if False:",
     f"{HTTP}::test_new_requests_are_503_while_accepted_ones_are_finished"),
    (4, "new connections are refused at shutdown", "server/http_server.py",
     "        await self._wait(lambda: all(task.done() for task in accepted), end)\n",
     "        for server in self.servers:\n            server.close()\n        for each in sockets or ():\n"
     "            each.close()\n        await self._wait(lambda: all(task.done() for task in accepted), end)\n",
     f"{HTTP}::test_new_requests_are_503_while_accepted_ones_are_finished"),
    (4, "connections in the kernel are reset at shutdown", "server/http_server.py",
     "        for each in waiting:\n", "        for each in ():\n",
     f"{HTTP}::test_connections_that_the_kernel_holds_are_accepted_before_the_socket_is_closed"),
    (5, "any Host header is accepted", "server/app.py", '    return "*" in hosts or host in hosts', "    return True",
     "tests/server/test_app_auth.py::test_a_host_that_is_not_allowed_is_refused"),
    (5, "other sites may start a run", "server/playground/app.py",
     "    if origin is not None and ", "    if False and ",
     "tests/server/playground/test_app_routes.py::test_the_page_of_another_site_cannot_start_anything"),
    (5, "bearer in lower case is refused", "server/app.py", 'scheme.lower() == b"bearer"', 'scheme == b"Bearer"',
     "tests/server/test_app_auth.py::test_a_token_opens_the_service"),
    (6, "the schema allows null", "server/schemas.py", "    item = ITEMS.get(inputs.kind, ", "    item = {}.get(None, ",
     "tests/server/test_app.py::test_the_schema_describes_what_is_accepted_and_not_null"),
    (6, "CSV is refused", "server/requests.py", 'is_csv = kind == "text/csv" and tables', "is_csv = False",
     "tests/server/test_requests.py::test_the_rows_of_a_table_may_come_as_csv"),
    (6, "one missing column is named at a time", "data/readers/table_files.py",
     "    lacking = [name for name in wanted if name not in names]\n",
     "    lacking = [name for name in wanted if name not in names][:1]\n",
     "tests/data/test_sources.py::test_columns_that_are_missing_are_all_named"),
    (7, "fit separates copies", "fitting/preparation.py", "    groups, notes = identical_groups(source.train), []",
     "    groups, notes = torch.arange(len(source.train)), []",
     "tests/fitting/test_preparation.py::test_copies_stay_in_one_part_and_are_noted"),
    (7, "the estimator separates copies", "estimator/rows.py", "        identical = identical_groups(examples)\n",
     "        identical = torch.arange(len(examples))\n", "tests/estimator/test_rows.py"),
    (7, "the estimator ignores groups", "estimator/rows.py", "        if groups is None:\n", "        if True:\n",
     "tests/estimator/test_rows.py"),
    (7, "near-duplicates are separated", "fitting/encoding.py", "    if options.near_duplicates:\n", "    if False:\n",
     "tests/fitting/test_near_duplicates.py"),
    (7, "groups pass through floats", "fitting/columns.py", ", *filter(None, [options.group]))\n", ")\n",
     "tests/fitting/test_preparation.py::test_large_or_mixed_numbers_of_groups_stay_different"),
    (8, "labels pass through floats", "data/readers/columns.py",
     '    if values.dtype.kind in "iuf" and not as_words:\n        return Numbers(values.astype(np.float64))\n',
     '    if values.dtype.kind in "iuf":\n        values = values.astype(np.float64)\n        if not as_words:\n'
     "            return Numbers(values)\n",
     "tests/data/test_sources.py::test_large_integer_labels_stay_different_classes"),
    (8, "unsigned labels of the estimator pass through floats", "estimator/labels.py",
     "    if classes.dtype == np.uint64:", "    if False:",
     "tests/estimator/test_labels.py::test_large_unsigned_labels_stay_exact_beside_unknown"),
    (9, "only some endings are images", "data/readers/images.py",
     "    if ending in COMMON or ", "    return ending in COMMON\n    if ending in COMMON or ",
     "tests/data/readers/test_folder.py::test_every_format_of_pillow_is_read_by_its_ending"),
    (9, "skipped files are not reported", "data/readers/folder.py", "LEFT_OUT = (", 'LEFT_OUT = ("",)\n_OTHERS = (',
     "tests/fitting/test_encoding.py::test_a_folder_of_photographs_is_fitted_in_closed_form "
     "tests/data/readers/test_folder.py"),
    (9, "predict does not report skipped files", "data/sources.py", "in skipped(path, others):", "in ():",
     "tests/classifier/test_streaming.py::test_files_of_a_folder_that_are_no_images_are_noted"),
    (9, "evaluate does not report skipped files", "evaluation/evaluation.py",
     "does not know\"] * bool(left) + source.notes", "does not know\"] * bool(left)",
     "tests/evaluation/test_evaluation.py::test_of_a_folder_known_takes_the_known_classes_and_novel_the_others"),
    (9, "skipped files of a folder of texts are not reported", "data/sources.py", "return texts + [", "return [",
     "tests/data/readers/test_texts.py::test_files_that_are_left_out_of_a_folder_of_texts_are_noted"),
    (10, "pipes and devices are opened", "data/readers/images.py",
     "        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe or a device might never end", "        if False:",
     "tests/data/readers/test_folder.py::test_pipes_devices_and_links_to_themselves_are_named_and_never_opened"),
    (10, "a link to itself is a traceback", "data/readers/folder.py",
     "    except OSError:  # a link that leads to itself", "    except ZeroDivisionError:",
     "tests/data/readers/test_folder.py::test_pipes_devices_and_links_to_themselves_are_named_and_never_opened"),
    (11, "EXIF orientation is ignored", "data/readers/images.py",
     "        return value if value in range(1, 9) else 1", "        return 1",
     "tests/data/readers/test_images.py::test_an_exif_orientation_is_applied"),
    (11, "the service ignores EXIF orientation", "data/readers/images.py",
     "        return value if value in range(1, 9) else 1", "        return 1",
     "tests/server/test_inputs.py::test_the_orientation_of_an_upload_is_applied"),
    (12, "1_0 is ten", "data/readers/columns.py", '    if "_" in "".join(texts):  # Python reads 1_0 as ten\n',
     "    if False:\n", "tests/data/test_sources.py::test_an_underscore_makes_a_word_of_a_number_for_both"),
    (12, "1e308 is named without its row", "data/readers/tables.py", "LARGEST = 1e150", "LARGEST = 1e309",
     "tests/data/test_sources.py::test_a_number_too_large_to_use_is_named_with_file_and_row"),
    (12, "a long value is called a broken quote", "data/readers/table_files.py",
     '        if "field limit" in str(error):', "        if False:",
     "tests/data/test_sources.py::test_a_value_that_is_too_long_is_not_called_a_broken_quote"),
    (12, "columns that are ignored are not noted", "data/readers/table_files.py",
     '            sys.stderr.write(f"note: {path}: the model uses', '            str(f"note: {path}: the model uses',
     "tests/data/test_sources.py::test_a_matrix_with_more_columns_than_the_model_is_answered_with_a_note"),
    (12, "0.0_5 is a rate", "server/requests.py", '.replace("_", "?")', "",
     "tests/server/test_requests.py::test_an_underscore_is_no_part_of_a_rate"),
    (13, "the output is checked after training", "fitting/output.py",
     "        check_bundle_folder(folder, overwrite)\n", "", "tests/fitting/test_output.py"),
    (13, "free space is not checked", "files.py", "    if free < least:", "    if False:",
     "tests/fitting/test_output.py::test_a_disk_that_is_nearly_full_is_named"),
    (13, "fit checks the rate after fitting", "fitting/pipeline.py",
     'if rate != "auto" and n < examples_needed(rate):', "if False:",
     "tests/fitting/test_pipeline.py::test_a_rate_that_needs_more_examples_is_refused_before_anything_is_encoded"),
    (14, "a path that cannot be written is a traceback", "files.py",
     "    except (OSError, RuntimeError) as error:  # RuntimeError for links that lead to themselves",
     "    except ZeroDivisionError as error:",
     "tests/test_files.py::test_a_read_only_folder_is_one_sentence "
     "tests/fitting/test_output.py::test_a_path_that_cannot_be_written_is_one_sentence"),
    (14, "the root is taken for a model", "files.py", "        if not path.name:", "        if False:",
     "tests/fitting/test_output.py::test_the_root_is_no_folder_for_a_model"),
    (14, "a full output is a traceback", "cli/__init__.py", "    except OSError as error:\n",
     "    except ZeroDivisionError as error:\n", "tests/cli/test_app.py::test_output_to_a_full_disk_is_one_sentence"),
    (15, "two runs write to one folder", "files.py", "        lock.acquire(timeout=0)\n", "        pass\n",
     "tests/fitting/test_output.py::test_a_second_run_to_the_same_folder_is_refused"),
    (15, "what a killed run left stays", "fitting/output.py",
     "            shutil.rmtree(stopped, ignore_errors=True)\n", "            pass\n",
     "tests/fitting/test_output.py::test_what_a_run_left_that_was_killed_before_its_first_checkpoint_is_removed"),
    (16, "memory is allocated before shapes are compared", "bundle/parts.py",
     '    device = nullcontext() if is_external or ":" in name else torch.device("meta")', "    device = nullcontext()",
     "tests/bundle/test_loading.py::test_shapes_are_compared_before_anything_is_allocated"),
    (16, "any number of layers is built", "bundle/parts.py", "next(counter) > most:", "next(counter) > 10**9:",
     "tests/bundle/test_loading.py::test_a_network_of_too_many_layers_is_not_built"),
    (16, "infinite weights are loaded", "bundle/saving.py", "tensor.isinf() & is_weight", "tensor.isinf() & False",
     "tests/bundle/test_loading.py::test_weights_with_nan_or_infinity_are_refused"),
    (16, "float16 weights stay so", "bundle/loading.py", "t.is_floating_point() and t.element_size() < 4", "False",
     "tests/bundle/test_loading.py::test_weights_of_half_precision_are_loaded_as_float32"),
    (16, "complex weights are loaded", "bundle/parts.py", "'' if t.is_floating_point() else f' of {t.dtype}'", "''",
     "tests/bundle/test_loading.py::test_weights_of_another_kind_are_refused"),
    (17, "the first checkpoint comes after 30 s", "training/loop.py", "self.checkpoints.is_due() or is_first",
     "self.checkpoints.is_due()", "tests/training/test_loop.py::test_the_first_epoch_ends_with_a_checkpoint"),
]  # fmt: skip


def main() -> int:
    words = sys.argv[1:]
    chosen = [each for each in FIXES if not words or any(word in f"{each[0]} {each[1]}" for word in words)]
    results = json.loads(RESULTS.read_text()) if words and RESULTS.exists() else []
    order = [each[1] for each in FIXES]
    for item, weakness, name, fix, without, tests in chosen:
        outcome = run(name, fix, without, tests)
        print(f"{item}: {weakness}: {outcome}", flush=True)
        row = {"item": item, "weakness": weakness, "tests": tests.split(), "outcome": outcome}
        results = [each for each in results if each["weakness"] != weakness] + [row]
        write(sorted(results, key=lambda each: order.index(each["weakness"])))
    return 1 if any(each["outcome"] != "failed" for each in results) else 0


def run(name: str, fix: str, without: str, tests: str) -> str:
    """Return "failed", "did not end" or "passed": what the tests do without the fix."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(ROOT / "src", f"{scratch}/src", ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(scratch, "src", "openradial", name)
        text = path.read_text()
        if text.count(fix) != 1:
            raise SystemExit(f"{name} must contain once: {fix}")
        path.write_text(text.replace(fix, without))
        environment = os.environ | {"PYTHONPATH": f"{scratch}/src", "OPENRADIAL_TEST_PATIENCE": str(PATIENCE)}
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", *tests.split()]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output = process.communicate(timeout=TIMEOUT)[0].decode()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return "did not end"
    if process.returncode not in (0, 1):
        raise SystemExit(f"{tests} cannot be run:\n{output[-3000:]}")
    return "failed" if process.returncode else "passed"


def write(results: list) -> None:
    from openradial.files import write_text

    write_text(RESULTS, json.dumps(results, indent=1) + "\n")
    rows = []
    for each in results:
        tests = ", ".join(f"`{test.removeprefix('tests/')}`" for test in each["tests"])
        rows.append(f"| {each['item']} | {each['weakness']} | {tests} | {each['outcome']} |")
    head = ["| item | without the fix | test | the test then |", "| ---: | --- | --- | --- |"]
    write_text(RESULTS.with_suffix(".md"), "\n".join([*head, *rows, ""]))


if __name__ == "__main__":
    sys.exit(main())
