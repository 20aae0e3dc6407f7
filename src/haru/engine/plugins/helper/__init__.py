"""Hold what several plugins share, as kube-scheduler's plugins/helper does."""
