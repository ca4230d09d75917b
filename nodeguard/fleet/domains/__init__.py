"""From what nodes say to the domains that are kept from gangs, and the words for it."""
