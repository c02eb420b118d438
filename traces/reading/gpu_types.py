"""GPU types: from the words of the logs to the names of the catalogue (sim/hardware/gpus.toml), in one written map.

Names that an operator made up to hide a type (G2, GPU-series-1) stand for nothing that is known, and stay as they are.
"""

from __future__ import annotations

import numpy as np

from traces.words import coded

#: Word of a log (upper case) -> name in the catalogue. A word that is not here stays as it is.
NAMES: dict[str, str] = {
    # Alibaba PAI 2020 and openb 2023
    "V100M16": "V100", "V100M32": "V100-32",
    # Alibaba spot 2026
    "A100-SXM4-80GB": "A100-80", "A800-SXM4-80GB": "A800",
}


def catalogue_names(cells: np.ndarray) -> np.ndarray:
    """Map cells, each a word or alternatives `A|B`, to names of the catalogue; an alternative named twice counts once.

    Parameters
    ----------
    cells : object[n] of str

    Returns
    -------
    ndarray
        object[n] of str, alternatives joined by "|" in the order of the log.
    """
    codes, words = coded(cells)
    names = ["|".join(dict.fromkeys(NAMES.get(w.strip().upper(), w.strip()) for w in cell.split("|") if w.strip()))
             for cell in words]
    found: np.ndarray = np.array([*names, ""], dtype=object)[codes]
    return found
