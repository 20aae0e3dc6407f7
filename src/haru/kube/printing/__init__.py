"""The columns of each kind, by family; haru.kube.printers puts them into tables."""
