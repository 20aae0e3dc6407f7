"""The `haru` command: one file per subcommand, each imported only when it runs."""
