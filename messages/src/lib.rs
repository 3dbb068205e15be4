//! Tests of what users see: `tests/ui/fail` are programs with the messages that they get, `tests/ui/pass` programs that compile.
