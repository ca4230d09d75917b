"""What a condition can come to, ordered so that the highest of some is what `any` of them comes to."""

NOT_APPLICABLE = 0
FALSE = 1
UNKNOWN = 2
TRUE = 3
