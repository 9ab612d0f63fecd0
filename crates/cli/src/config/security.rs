//! Access to a server, its TLS, and the credentials that commands present.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use annals::credentials::{EVERY, Grant, Role, SYSTEM_TENANT};
use annals::server::{ClientCertificates, Issuer, Keys, Security, Tls};
use annals::{ClientOptions, Code, KeyFetcher};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The variable that holds a key. It is not a key of the configuration, so that `config show` cannot show it.
const VARIABLE: &str = "ANNALS_CREDENTIAL";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecuritySection {
    /// The tenant that holds the credentials and the audit log.
    pub tenant: String,
    /// Most requests per second of each caller; 0 for no limit.
    pub requests_per_second: u64,
    /// Most bytes per second of each caller; 0 for no limit.
    pub bytes_per_second: u64,
    /// Issuers of tokens, by a name.
    pub issuers: BTreeMap<String, IssuerSection>,
    /// The grants of holders of client certificates, by subject.
    pub certificates: BTreeMap<String, GrantSection>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerSection {
    issuer: String,
    audience: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    jwks_url: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    jwks_file: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    algorithms: Vec<String>,
    #[serde(default = "roles")]
    roles_claim: String,
    #[serde(default = "tenants")]
    tenants_claim: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    scopes_claim: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    event_types_claim: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    streams_claim: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    roles: BTreeMap<String, Role>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
    #[serde(default = "leeway")]
    leeway_s: u64,
}

fn roles() -> String {
    "roles".to_owned()
}

fn tenants() -> String {
    "tenants".to_owned()
}

fn leeway() -> u64 {
    60
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantSection {
    roles: Vec<Role>,
    tenants: Vec<String>,
    #[serde(default = "every")]
    scopes: Vec<String>,
    #[serde(default = "every")]
    event_types: Vec<String>,
    #[serde(default = "every")]
    streams: Vec<String>,
}

fn every() -> Vec<String> {
    vec![EVERY.to_owned()]
}

impl Default for SecuritySection {
    fn default() -> Self {
        Self {
            tenant: SYSTEM_TENANT.to_owned(),
            requests_per_second: 0,
            bytes_per_second: 0,
            issuers: BTreeMap::new(),
            certificates: BTreeMap::new(),
        }
    }
}

impl SecuritySection {
    /// Returns whether callers can be authenticated without an API key.
    pub fn knows_without_keys(&self) -> bool {
        !self.issuers.is_empty() || !self.certificates.is_empty()
    }

    /// Returns how the server authenticates callers.
    ///
    /// # Errors
    /// `invalid_config`, naming the key.
    pub fn options(&self, client: &ClientSection) -> Result<Security, Failure> {
        let mut security = Security::default();
        security.system_tenant = self.tenant.clone();
        security.requests_per_second = self.requests_per_second;
        security.bytes_per_second = self.bytes_per_second;
        for (name, section) in &self.issuers {
            let issuer = section.issuer(client);
            issuer.validate().map_err(|why| Failure::config(format!("security.issuers.{name}: {why}")))?;
            security.issuers.push(issuer);
        }
        for (subject, section) in &self.certificates {
            let GrantSection { roles, tenants, scopes, event_types, streams } = section.clone();
            let grant = Grant { roles, tenants, scopes, event_types, streams };
            grant.validate().map_err(|why| Failure::config(format!("security.certificates.{subject:?}: {why}")))?;
            security.certificates.insert(subject.clone(), grant);
        }
        Ok(security)
    }
}

impl IssuerSection {
    fn issuer(&self, client: &ClientSection) -> Issuer {
        let mut issuer = Issuer::new(&self.issuer, &self.audience);
        let fetcher = Arc::new(KeyFetcher::new(client.authorities()));
        issuer.keys = Some(match (&*self.jwks_url, &*self.jwks_file) {
            ("", "") => Keys::Discovered(fetcher),
            (url, "") => Keys::Url(url.to_owned(), fetcher),
            (_, file) => Keys::File(PathBuf::from(file)),
        });
        issuer.algorithms.clone_from(&self.algorithms);
        issuer.roles_claim.clone_from(&self.roles_claim);
        issuer.tenants_claim.clone_from(&self.tenants_claim);
        let claim = |name: &String| (!name.is_empty()).then(|| name.clone());
        (issuer.scopes_claim, issuer.event_types_claim) = (claim(&self.scopes_claim), claim(&self.event_types_claim));
        issuer.streams_claim = claim(&self.streams_claim);
        issuer.roles.clone_from(&self.roles);
        issuer.tenants.clone_from(&self.tenants);
        issuer.leeway = Duration::from_secs(self.leeway_s);
        issuer
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSection {
    /// The certificate chain in PEM; empty for plain HTTP.
    pub certificate_file: String,
    /// The certificate's private key in PEM.
    pub key_file: String,
    /// The authorities of client certificates in PEM; empty to request none.
    pub client_ca_file: String,
    /// Whether a client without a certificate is refused.
    pub client_required: bool,
}

impl TlsSection {
    /// Returns the TLS of the server, if it has any.
    ///
    /// # Errors
    /// `invalid_config` for a file that is missing or cannot be used.
    pub fn options(&self) -> Result<Option<Tls>, Failure> {
        match (&*self.certificate_file, &*self.key_file) {
            ("", "") if self.client_ca_file.is_empty() => return Ok(None),
            ("", _) => return Err(Failure::config("tls.certificate_file: it is not set, but TLS needs a certificate")),
            (_, "") => return Err(Failure::config("tls.key_file: it is not set, but the certificate needs its key")),
            _ => {}
        }
        let clients = (!self.client_ca_file.is_empty()).then(|| ClientCertificates {
            authorities: PathBuf::from(&self.client_ca_file),
            required: self.client_required,
        });
        let tls = Tls::read(&self.certificate_file, &self.key_file, clients);
        tls.map(Some).map_err(|why| Failure::config(format!("tls: {why}")))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSection {
    /// A file with an API key; empty for none.
    pub credential_file: String,
    /// The authorities of servers in PEM; empty for those of the system.
    pub ca_file: String,
}

impl ClientSection {
    /// Returns the options for reaching a server without a credential.
    pub fn authorities(&self) -> ClientOptions {
        let mut options = ClientOptions::default();
        options.authorities = (!self.ca_file.is_empty()).then(|| PathBuf::from(&self.ca_file));
        options
    }

    /// Returns the options for calling a server.
    ///
    /// # Errors
    /// `unreadable_input` for a file that cannot be read.
    pub fn options(&self) -> Result<ClientOptions, Failure> {
        let mut options = self.authorities();
        options.credential = match std::env::var(VARIABLE) {
            Ok(key) if !key.trim().is_empty() => Some(key.trim().to_owned()),
            _ if self.credential_file.is_empty() => None,
            _ => {
                let file = Path::new(&self.credential_file);
                let read = std::fs::read_to_string(file);
                let text = read.map_err(|error| {
                    let message = format!("client.credential_file: {}: {error}", file.display());
                    Failure::new(Code::UnreadableInput, message)
                })?;
                Some(text.trim().to_owned())
            }
        };
        Ok(options)
    }
}
