//! Resolves the address to listen on.

use std::net::SocketAddr;

use crate::failure::Failure;

/// Resolves `text`, which is IP:PORT or NAME:PORT; `key` names it in messages. A name with several addresses resolves to the first IPv4
/// address, because that is what other programs try.
///
/// # Errors
/// `invalid_config` for anything else, and for a name that has no address.
pub async fn resolve(key: &str, text: &str, example: &str) -> Result<SocketAddr, Failure> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = |why: &str| {
        Failure::config(format!(
            "{key}: {text:?} is not an address{why}; write IP:PORT or NAME:PORT, for example {example}"
        ))
    };
    let named = text.rsplit_once(':').filter(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    if named.is_none() {
        return Err(wrong(""));
    }
    let found: Vec<SocketAddr> = match tokio::net::lookup_host(text).await {
        Ok(found) => found.collect(),
        Err(error) => return Err(wrong(&format!(" ({error})"))),
    };
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    best.copied().ok_or_else(|| wrong(" (the name has none)"))
}
