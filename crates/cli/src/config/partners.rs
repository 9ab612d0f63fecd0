//! How events are exchanged with partners.

use annals::HttpSending;
use annals::runtime::{PartnerKeys, PartnerOptions};
use serde::{Deserialize, Serialize};

use super::Config;
use crate::failure::Failure;

/// What `serve --dev` allows: receivers on this machine.
const OF_DEVELOPMENT: [&str; 2] = ["127.0.0.0/8", "::1/128"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct PartnersSection {
    /// A file with the keys of the partners' secrets, one a line, each 32 random bytes in base64: the first one encrypts, all of them
    /// decrypt; empty for none.
    pub key_file: String,
    /// Addresses and networks beside the public internet that events may be sent to.
    pub allow: Vec<String>,
}

impl PartnersSection {
    /// What the task host gets.
    ///
    /// # Errors
    /// `invalid_config` for what is no key or no network.
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
