"""Wires: how frames reach a provider and come back. What the frames mean is the codecs' business."""
