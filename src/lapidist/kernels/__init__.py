"""The kernels: what each takes, its configs, its cost; a package a family."""
