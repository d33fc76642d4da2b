"""The panel of coloured text in a real browser, under the content security policy of the pages."""

import base64
import hashlib
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from chainrule.inspection.predictions import Predictions, load_script, predictions_html

EOS, A, B = 1, 2, 3


def browse(folder: Path, markup: str, action: str = "") -> str:
    """The DOM in a browser under the strict policy of the pages, after the program and an action."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    programs = [load_script(), action]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in programs]
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src " + " ".join(
        f"'sha256-{d}'" for d in digests
    )
    scripts = "".join(f"<script>{script}</script>" for script in programs)
    file = folder / "page.html"
    file.write_text(
        f'<!doctype html><html><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"></head>'
        f"<body>{markup}{scripts}</body></html>",
        encoding="utf-8",
    )
    switches = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom")
    command = [browser, *switches, f"--user-data-dir={folder / 'profile'}", file.as_uri()]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()


def panel_of(dom: str) -> str:
    return dom[dom.index('<div class="read-panel"') : dom.index('<script type="application/json">')]


@pytest.mark.slow
def test_panel_opens_by_pointer_focus_and_keys(tmp_path: Path) -> None:
    ids = np.array([A, B, EOS])
    top = np.array([[A, B, EOS], [A, EOS, B], [EOS, A, B]])
    p = np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.9, 0.06, 0.04]])
    log_prob = np.log([0.5, 0.1, 0.9])
    predictions_ = Predictions(ids, log_prob, np.array([1, 3, 1]), np.full(3, math.log(2)), top, np.log(p), 3)
    markup = predictions_html(["<a>", "b", "</s>"], predictions_, ["<s>", "</s>", "<a>", "b"], EOS)
    shut = panel_of(browse(tmp_path, markup))
    assert "hidden" not in shut[:60]
    assert "<bdi><b" in shut
    assert "&lt;a&gt;" in shut  # the first token is open initially and escaped
    assert "50.0 %" in shut
    tokens = 'const tokens = document.querySelectorAll(".read-token");'
    actions = {
        "pointer": 'tokens[1].dispatchEvent(new PointerEvent("pointerenter"));',
        "focus": "tokens[1].focus();",
        "keys": 'tokens[0].focus(); tokens[0].dispatchEvent(new KeyboardEvent("keydown", '
        '{key: "ArrowRight", bubbles: true}));',
    }
    for action in actions.values():
        dom = browse(tmp_path, markup, tokens + action)
        opened = panel_of(dom)
        # −log₂ 0.1 = 3.32 bits
        assert "3.32 bits, rank 3 of 3; entropy 1.00 bits." in opened
        assert re.findall(r'class="read-number">([^<]*)<', opened) == ["60.0 %", "30.0 %", "10.0 %"]
        assert len(re.findall(r'title="observed token"', opened)) == 1
        assert dom.count('aria-selected="true"') == 1
        assert dom.count('tabindex="0"') == 1
