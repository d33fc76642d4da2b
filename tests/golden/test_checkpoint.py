"""A run that an earlier version stopped is resumed, and reaches the recorded model."""

import json
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import load_file

from golden.checkpoint import FIGURES, WEIGHTS, continued_run
from golden.recorded import TRAINED_NETWORK, check_stored
from golden.session import working_folder

ABSOLUTE: Final = 1e-5
"""Of a weight after 83 updates of AdamW of at most 0.01 each. On one machine the weights are equal bit for bit; on
another float32 sums are rounded differently (1e-7), and AdamW, which divides by the root of the mean square
gradient, enlarges that where gradients are small. Without AVX2 the largest difference is 1.2e-7."""


def test_stored_checkpoint_resumes(tmp_path: Path) -> None:
    with working_folder(tmp_path) as folder:
        weights, figures = continued_run(folder)
    recorded = load_file(WEIGHTS)
    assert {name: (array.dtype, array.shape) for name, array in weights.items()} == {
        name: (array.dtype, array.shape) for name, array in recorded.items()
    }
    for name, array in recorded.items():
        np.testing.assert_allclose(weights[name], array, rtol=0, atol=ABSOLUTE, err_msg=name)
    check_stored(FIGURES, json.dumps(figures, indent=1) + "\n", TRAINED_NETWORK)
