// Carries the precompiled headers of tests.
