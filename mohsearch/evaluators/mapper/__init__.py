"""Loop-nest access counts and the exact layer mapper."""
