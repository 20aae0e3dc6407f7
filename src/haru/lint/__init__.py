"""What is wrong with manifests, why, and what to write instead. Pure: texts in, findings and texts out.

A file goes through five stages, and all of them tell all that they can see: yaml (is it YAML?), kind (is there such a
kind?), schema (has it that form, as strict decoding asks?), validation (does the API take it, CEL included?) and
semantic (will it do what its author wants?). The last looks at all files together, since objects refer to each other.
`docs/reference/lint.md` explains every check. Source of the semantic checks: the errata of published examples.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
