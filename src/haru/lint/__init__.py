"""What is wrong with manifests, why, and what to write instead. Pure: texts in, findings and texts out.

A file goes through five stages, and all of them tell all that they can see: yaml (is it YAML?), kind (is there such a
kind?), schema (has it that form, as strict decoding asks?), validation (does the API take it, CEL included?) and
semantic (will it do what its author wants?). The last looks at all files together, since objects refer to each other.
`docs/reference/lint.md` explains every check. Source of the semantic checks: the errata of published examples.
"""

from haru.lint.findings import STAGES, Finding
from haru.lint.fixing import Fixed, fix_texts
from haru.lint.output import to_json, to_text
from haru.lint.report import Report
from haru.lint.run import lint_texts

__all__ = ["STAGES", "Finding", "Fixed", "Report", "fix_texts", "lint_texts", "to_json", "to_text"]
