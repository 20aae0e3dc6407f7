"""Who looks at the dashboard of a cluster, and what each person may see: TokenReview and SubjectAccessReview say it."""
