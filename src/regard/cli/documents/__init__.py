"""Commands on whole documents."""
