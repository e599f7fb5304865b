"""Reports as text for people, as JSON for programs, and as what CI reads. Nothing here knows what a report is about."""
