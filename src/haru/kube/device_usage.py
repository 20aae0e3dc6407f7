"""Where a claim's status says how busy a device is: a member of `status.devices[].data` (KEP-4817), in percent."""

UTILIZATION_KEY = "haru.dev/utilization-percent"
