//! A code-execution service on the event log
