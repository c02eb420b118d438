"""Ours, which plans each job over GPU types, and its baselines: each file is one policy, its name the policy's."""
