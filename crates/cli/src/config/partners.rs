//! The exchange of events with partners.

use annals::HttpSending;
use annals::runtime::{PartnerKeys, PartnerOptions};
use serde::{Deserialize, Serialize};

use super::Config;
use crate::failure::Failure;

/// The receivers that `serve --dev` allows: those on this machine.
const OF_DEVELOPMENT: [&str; 2] = ["127.0.0.0/8", "::1/128"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct PartnersSection {
    /// A file with the keys that encrypt the partners' secrets, one per line, each 32 random bytes in base64. The first key encrypts, and
    /// all of them decrypt; empty for none.
    pub key_file: String,
    /// Addresses and networks outside the public internet to which events may be sent.
    pub allow: Vec<String>,
}

impl PartnersSection {
    /// Returns the options for the task host.
    ///
    /// # Errors
    /// `invalid_config` for an invalid key or network.
    pub fn options(&self, config: &Config) -> Result<PartnerOptions, Failure> {
        let dev = config.server.dev;
        let allowed = self.allow.iter().map(String::as_str).chain(OF_DEVELOPMENT.into_iter().filter(|_| dev));
        let sending = HttpSending::default().allowing(allowed);
        let sending = sending.map_err(|error| Failure::config(format!("partners.allow: {error}")))?;
        let sending = sending.trusting(config.client.authorities().authorities);
        let keys = match (self.key_file.is_empty(), dev) {
            (false, _) => {
                let wrong = |error: String| Failure::config(format!("partners.key_file: {}: {error}", self.key_file));
                let text = std::fs::read_to_string(&self.key_file).map_err(|error| wrong(error.to_string()))?;
                let keys = text.lines().map(str::trim).filter(|line| !line.is_empty());
                Some(PartnerKeys::read(keys).map_err(wrong)?)
            }
            (true, true) => Some(PartnerKeys::for_development()),
            (true, false) => None,
        };
        Ok(PartnerOptions { sending: std::sync::Arc::new(sending), keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_networks_are_checked_and_development_needs_neither() {
        let mut config = Config::default();
        assert!(config.partners.options(&config).expect("options").keys.is_none());
        config.server.dev = true;
        assert!(config.partners.options(&config).expect("options").keys.is_some());
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys");
        config.partners.key_file = file.display().to_string();
        for text in [None, Some("short"), Some("")] {
            if let Some(text) = text {
                std::fs::write(&file, text).expect("written");
            }
            assert!(
                config.partners.options(&config).map(drop).expect_err("refused").message.contains("partners.key_file")
            );
        }
        std::fs::write(&file, "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\n").expect("written");
        assert!(config.partners.options(&config).expect("options").keys.is_some());
        config.partners.key_file.clear();
        config.partners.allow = vec!["here".to_owned()];
        assert!(config.partners.options(&config).map(drop).expect_err("refused").message.contains("partners.allow"));
    }
}
