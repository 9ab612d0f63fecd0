//! HTTP, server-sent events, health and metrics over the ports
