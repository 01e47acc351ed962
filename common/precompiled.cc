// A library has a source: this one holds the precompiled header.
