from .claim_updates import BindingError as BindingError
from .claim_updates import ClaimWrite as ClaimWrite
from .claim_updates import claim_writes as claim_writes
from .claim_updates import freed_status as freed_status
from .claim_updates import reserved_claim as reserved_claim
from .idle_claims import abandoned_claims as abandoned_claims
