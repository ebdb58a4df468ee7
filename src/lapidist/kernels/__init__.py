"""The kernels: what each takes, its configs, its predicted time. Each family has a package."""
