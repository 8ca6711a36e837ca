"""The one recording that all speech contenders hear.

Knows numpy only. The models have random weights, so any sound will do, as long as it is equal.
"""

from __future__ import annotations

import functools

import numpy as np

RATE = 16_000
"""Samples a second."""

LANGUAGE = "en"


@functools.cache
def samples() -> np.ndarray:
    """Thirty seconds, a whole window: float32 of shape (480000,), tones that rise and noise."""
    seconds = np.arange(30 * RATE) / RATE
    noise = np.random.default_rng(0).standard_normal(len(seconds))
    return (0.3 * np.sin(2 * np.pi * (200 + 20 * seconds) * seconds) + 0.05 * noise).astype(
        np.float32
    )


def features(folder: str) -> np.ndarray:
    """What a checkpoint's own feature extractor makes of it, (1, mel bins, frames)."""
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    return extractor(samples(), sampling_rate=RATE, return_tensors="np").input_features
