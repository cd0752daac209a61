"""The Responses API and conversations: everything behind their two plugins."""
