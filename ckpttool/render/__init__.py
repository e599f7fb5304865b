"""Reports as text for people and as JSON for programs. Nothing here knows what a report is about."""
