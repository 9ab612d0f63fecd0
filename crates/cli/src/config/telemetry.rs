//! The export of spans.

use std::sync::Arc;

use annals::{OtlpOptions, OtlpSpans};
use serde::{Deserialize, Serialize};

use super::ClientSection;
use crate::failure::Failure;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TelemetrySection {
    /// The endpoint of an OpenTelemetry collector; empty for none.
    pub otlp_endpoint: String,
    /// The name of the server in traces.
    pub service_name: String,
    /// Records one in this many of the traces that begin at the server; 0 for none.
    pub sample_one_in: u32,
}

impl Default for TelemetrySection {
    fn default() -> Self {
        Self { otlp_endpoint: String::new(), service_name: "annals".to_owned(), sample_one_in: 1 }
    }
}

impl TelemetrySection {
    /// Starts to export spans if an endpoint is configured.
    ///
    /// # Errors
    /// `invalid_config` if it is not a URL, or the authorities of `client` cannot be read.
    pub fn spans(&self, client: &ClientSection) -> Result<Option<Arc<OtlpSpans>>, Failure> {
        if self.otlp_endpoint.is_empty() {
            return Ok(None);
        }
        let mut options = OtlpOptions::new(&self.otlp_endpoint);
        options.service_name.clone_from(&self.service_name);
        options.sample_one_in = self.sample_one_in;
        options.authorities = client.authorities().authorities;
        let invalid = |error| {
            let example = "write the URL of a collector for OTLP over HTTP, such as http://127.0.0.1:4318";
            Failure::config(format!("telemetry.otlp_endpoint: {error}; {example}"))
        };
        OtlpSpans::start(&options).map(Some).map_err(invalid)
    }
}
