"""One tagger in one process: loads, tags, prints one line of JSON. Run by ``bench_tagger.py``; imports no other file.

    python tests/bench/rivals.py NAME TEXTS.json

Of ours the name is ``ours:<system>:<profile>`` and the interpreter that of the checkout; each rival is run by the
interpreter of the environment that has it. Nothing of this project is imported for a rival.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

ROUNDS = 3
_PHILEAS = """
age bankRoutingNumber bitcoinAddress creditCard currency date driversLicense emailAddress ibanCode ipAddress macAddress
passportNumber phoneNumber ssn streetAddress trackingNumber url vin zipCode
"""
Tag = Callable[[str], int]
"""Findings of a text, counted."""


def ours(name: str) -> Tag:
    root = Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root))
    recognize, model = (import_module(f"deid_agent.{package}") for package in ("recognize", "model"))
    _, system, profile = name.split(":")
    rules = recognize.load_rules(root / "rules")
    tagger = recognize.load_tagger(rules, root / "models", system, recognize.Profile(profile))
    return lambda text: len(tagger.find(model.Document(text)))


def presidio(model: str) -> Tag:
    """Every English recognizer that comes with it; without a model its engine that does nothing for language."""
    library, engines = import_module("presidio_analyzer"), import_module("presidio_analyzer.nlp_engine")
    engine = "spacy" if model else "no_op"
    wanted = {"nlp_engine_name": engine, "models": [{"lang_code": "en", "model_name": model or "none"}]}
    language = engines.NlpEngineProvider(nlp_configuration=wanted).create_engine()
    registry = library.RecognizerRegistry(supported_languages=["en"])
    registry.load_predefined_recognizers(languages=["en"], nlp_engine=language)
    analyzer = library.AnalyzerEngine(registry=registry, nlp_engine=language, supported_languages=["en"])
    return lambda text: len(analyzer.analyze(text, language="en"))


def scrubadub() -> Tag:
    """The detectors that it loads by itself."""
    scrubber = import_module("scrubadub").Scrubber()
    return lambda text: sum(1 for _ in scrubber.iter_filth(text))


def scrubadub_names() -> Tag:
    """Its detectors and that of names with TextBlob, whose tagger needs a data set of NLTK."""
    library = import_module("scrubadub")
    scrubber = library.Scrubber()
    scrubber.add_detector(import_module("scrubadub.detectors.text_blob").TextBlobNameDetector)
    sum(1 for _ in scrubber.iter_filth("Anna Smith called."))
    return lambda text: sum(1 for _ in scrubber.iter_filth(text))


def philter_lite() -> Tag:
    """The filters of its configuration ``philter_delta``."""
    library = import_module("philter_lite")
    configs = Path(str(library.__file__)).parent / "configs"
    filters = library.load_filters(str(next(configs.glob("philter_delta.*"))))

    return lambda text: len(library.detect_phi(text, filters)[2].phi)


def phileas() -> Tag:
    """Every kind of identifier that its policies know, each redacted: it finds and replaces in one call."""
    policies, services = import_module("phileas.policy.policy"), import_module("phileas.services.filter_service")
    redact = [{"strategy": "REDACT", "redactionFormat": "{{{REDACTED-%t}}}"}]
    kinds = {kind: {f"{kind}FilterStrategies": redact} for kind in _PHILEAS.split()}
    policy = policies.Policy.from_dict({"name": "all", "identifiers": kinds})
    service = services.FilterService()
    return lambda text: len(service.filter(policy=policy, context="c", document_id="d", text=text).spans)


def load(name: str) -> Tag:
    if name.startswith("ours:"):
        return ours(name)
    if name.startswith("presidio"):
        return presidio(name.partition(":")[2])
    known = {"scrubadub": scrubadub, "scrubadub-names": scrubadub_names}
    known |= {"phileas": phileas, "philter-lite": philter_lite}
    return known[name]()


def memory(field: str) -> float:
    """MiB of this process: ``VmRSS`` now, ``VmHWM`` at most so far; 0 if the system does not report it."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field)), 0.0)


def main(name: str, file: str) -> None:
    request = json.loads(Path(file).read_text("utf-8"))
    notes, pages = request["notes"], request["pages"]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    before, start = memory("VmRSS"), time.perf_counter()
    tag = load(name)
    loaded = time.perf_counter() - start
    for text in notes[:3]:
        tag(text)
    found, best = 0, float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        found = sum(map(tag, notes))
        best = min(best, time.process_time() - start)
    start = time.process_time()
    tag(pages)
    long = time.process_time() - start
    grown = memory("VmHWM") - before
    sys.stdout.write(json.dumps({"load": loaded, "seconds": best, "pages": long, "found": found, "grown": grown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
