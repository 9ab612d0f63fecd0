//! What follows the log: processors with a position, retries and a graceful stop
