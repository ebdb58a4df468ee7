"""The family wgmma: Hopper's warpgroup matrix multiply."""
