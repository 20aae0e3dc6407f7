"""NVIDIA cards of a machine as DRA devices, as the NVIDIA DRA driver `gpu.nvidia.com` publishes and prepares them.

nvml.py           what is asked of NVML: the Protocol `Nvml`, and its answers as dataclasses
binding.py        over nvidia-ml-py (`haru[nvidia]`)
played.py         without a card: from a hardware profile or a recording
recording.py      recordings of NVML's answers
cards.py          devices of a node: attributes, capacities, counters
configuration.py  GpuConfig and MigDeviceConfig
partitions.py     MIG partitions made for a claim, and taken away with it
sharing.py        time slices and MPS
host.py           device files and libraries of this machine
plugin.py         the driver library's plugin
monitoring.py     ECC, XIDs, heat: health and taints
usage.py          how busy cards are, into the claims' status
process.py        `haru driver nvidia` from start to stop
"""
