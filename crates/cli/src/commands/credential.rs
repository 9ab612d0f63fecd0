//! `annals credential …`.

use std::sync::Arc;

use annals::audit::{ActBegun, ActEnded, ActOutcome, AuditPage};
use annals::credentials::{
    CreatedCredential, Credential as Shown, CredentialError, CredentialState, Credentials, EVERY, Grant, NewCredential,
    RevokeBody, Role,
};
use annals::runtime::{Audit, StoredCredentials};
use annals::{Client, Clock, CredentialsClient, DEFAULT_SCOPE, Store, SystemClock, Timestamp, limits};
use clap::{Args, Subcommand};

use super::Run;
use crate::cli::Format;
use crate::context::{Context, Reaches};
use crate::failure::{Failure, Stop};
use crate::output::Output;
use crate::target;

/// Create, list or revoke credentials: the keys with which callers reach a server
#[derive(Debug, Args)]
#[command(visible_alias = "credentials")]
pub struct Credential {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Create a credential and print its key, which cannot be read again
    #[command(
        after_help = "The first key of a store is created on the machine itself, with --store, while no server runs on it.\n\nExample:\n  annals credential create --store embedded:./data --name admin --role admin"
    )]
    Create(Create),
    /// List credentials, without their keys
    #[command(after_help = "Example:\n  annals credential list --output table")]
    List,
    /// Print a credential, without its key
    #[command(after_help = "Example:\n  annals credential show 4be21c07a9d05f36")]
    Show(One),
    /// Revoke a credential: servers refuse its key within seconds
    #[command(after_help = "Example:\n  annals credential revoke 4be21c07a9d05f36 --reason 'the laptop was stolen'")]
    Revoke(Revoke),
}

#[derive(Debug, Args)]
struct Create {
    /// A descriptive name
    #[arg(long, value_name = "NAME")]
    name: String,
    /// A role of the credential: reader, writer, operator or admin; may be repeated
    #[arg(long = "role", value_name = "ROLE", required = true)]
    roles: Vec<Role>,
    /// The tenants, separated by commas, or * for all [default: the tenant of --tenant; without it, * for the role admin]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tenants: Vec<String>,
    /// The scopes that may be read, separated by commas, or * for all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = EVERY)]
    scopes: Vec<String>,
    /// The event types that may be committed and read, separated by commas, or * for all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = EVERY)]
    event_types: Vec<String>,
    /// The streams that a reader may read, separated by commas, or * for all; a key of some streams may use nothing else
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = EVERY)]
    streams: Vec<String>,
    /// When it expires, RFC 3339; never when absent
    #[arg(long, value_name = "TIME", value_parser = Timestamp::parse)]
    expires: Option<Timestamp>,
    /// The maximum number of requests per second [default: the server's limit]
    #[arg(long, value_name = "COUNT")]
    requests_per_second: Option<u64>,
    /// The maximum number of bytes per second that it may send and receive [default: the server's limit]
    #[arg(long, value_name = "BYTES")]
    bytes_per_second: Option<u64>,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The user who asks, for the audit log
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

#[derive(Debug, Args)]
struct One {
    /// The id of the credential: the part of its key after `ann_`
    id: String,
}

#[derive(Debug, Args)]
struct Revoke {
    #[command(flatten)]
    one: One,
    /// The reason, for the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The user, for the audit log
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl Run for Credential {
    const REACHES: Reaches = Reaches::ServerOrStore;

    async fn run(&self, context: &Context) -> Result<(), Stop> {
        let keys = Keys::open(context, !matches!(self.what, What::Create(_))).await?;
        keys.run(async |keys| {
            let mut output = context.output();
            match &self.what {
                What::Create(args) => {
                    created(&mut output, &keys.create(args.asked(&context.tenant, context.names_tenant)).await?)?
                }
                What::List => list(keys, &mut output).await?,
                What::Show(args) => shown(&mut output, &keys.credentials().get(&args.id).await?)?,
                What::Revoke(args) => {
                    let why = RevokeBody { reason: args.reason.clone(), by: args.by.clone() };
                    shown(&mut output, &keys.revoke(&args.one.id, why).await?)?;
                }
            }
            output.flush()
        })
        .await
    }
}

impl Create {
    fn asked(&self, tenant: &str, is_named: bool) -> NewCredential {
        let tenants = match (&*self.tenants, self.roles.contains(&Role::Admin)) {
            // A named tenant is never widened to all of them.
            ([], true) if !is_named => vec![EVERY.to_owned()],
            ([], _) => vec![tenant.to_owned()],
            (named, _) => named.to_vec(),
        };
        let (scopes, event_types) = (self.scopes.clone(), self.event_types.clone());
        let grant = Grant { roles: self.roles.clone(), tenants, scopes, event_types, streams: self.streams.clone() };
        NewCredential {
            expires_at: self.expires,
            requests_per_second: self.requests_per_second,
            bytes_per_second: self.bytes_per_second,
            reason: self.reason.clone(),
            by: self.by.clone(),
            ..NewCredential::new(&self.name, grant)
        }
    }
}

fn created(output: &mut Output, created: &CreatedCredential) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(created),
        Format::Table => {
            output.text(format_args!("{}", line(&created.credential)))?;
            output.text(format_args!(""))?;
            output.text(format_args!("Its key, which is not shown again:"))?;
            output.text(format_args!("{}", created.key))
        }
    }
}

fn shown(output: &mut Output, credential: &Shown) -> Result<(), Stop> {
    match output.format() {
        Format::Json => output.json(credential),
        Format::Table => output.text(format_args!("{}", line(credential))),
    }
}

fn line(credential: &Shown) -> String {
    let Shown { id, name, roles, tenants, state, expires_at, .. } = credential;
    let roles: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    let until = match (state, expires_at) {
        (CredentialState::Active, Some(expires)) => format!(" until {expires}"),
        _ => String::new(),
    };
    format!("{id}  {}{until}  {} of {}  {name}", state.as_str(), roles.join(","), tenants.join(","))
}

async fn list(keys: &Keys, output: &mut Output) -> Result<(), Stop> {
    let mut after = None;
    loop {
        let page = keys.credentials().list(after.as_deref(), limits::PAGE_MAX).await?;
        for credential in &page.items {
            shown(output, credential)?;
        }
        match page.cursor {
            Some(cursor) => after = Some(cursor),
            None => return Ok(()),
        }
    }
}

/// The credentials and the audit log of a server, or of a store that this process opened.
pub struct Keys(Place);

enum Place {
    Server(Box<CredentialsClient>),
    Store { store: Arc<dyn Store>, credentials: StoredCredentials, audit: Audit },
}

impl Keys {
    /// Opens those of the server of `context`, or else of its store.
    pub async fn open(context: &Context, must_exist: bool) -> Result<Self, Failure> {
        if let Some(server) = &context.server {
            let client = Client::with(server, &context.tenant, DEFAULT_SCOPE, &context.client)?;
            return Ok(Self(Place::Server(Box::new(client.credentials()))));
        }
        let store = target::open_system_store(&context.config, must_exist).await?;
        let (tenant, clock) = (&context.config.security.tenant, || Arc::new(SystemClock) as Arc<dyn Clock>);
        let credentials = StoredCredentials::new(&*store, tenant, clock())?;
        let audit = Audit::new(&*store, tenant, clock())?;
        Ok(Self(Place::Store { store, credentials, audit }))
    }

    /// Runs a command's work on them, then closes the store regardless of the outcome.
    pub async fn run(self, work: impl AsyncFnOnce(&Self) -> Result<(), Stop>) -> Result<(), Stop> {
        let outcome = work(&self).await;
        if let Place::Store { store, .. } = &self.0 {
            store.close().await;
        }
        outcome
    }

    fn credentials(&self) -> &dyn Credentials {
        match &self.0 {
            Place::Server(client) => &**client,
            Place::Store { credentials, .. } => credentials,
        }
    }

    /// Returns a page of the audit log.
    pub async fn audit(&self, cursor: Option<&str>, limit: usize) -> Result<AuditPage, Failure> {
        match &self.0 {
            Place::Server(client) => Ok(client.audit(cursor, limit).await?),
            Place::Store { audit, .. } => Ok(audit.list(cursor, limit).await?),
        }
    }

    async fn create(&self, new: NewCredential) -> Result<CreatedCredential, Failure> {
        let act = ("createCredential", None, new.reason.clone(), new.by.clone());
        self.recorded(act, self.credentials().create(new)).await
    }

    async fn revoke(&self, id: &str, why: RevokeBody) -> Result<Shown, Failure> {
        let act = ("revokeCredential", Some(id.to_owned()), why.reason.clone(), why.by.clone());
        self.recorded(act, self.credentials().revoke(id, why)).await
    }

    /// Records an act in the audit log of the opened store. A server records the acts that it performs itself.
    async fn recorded<T>(
        &self,
        (what, path, why, by): (&str, Option<String>, Option<String>, Option<String>),
        act: impl Future<Output = Result<T, CredentialError>>,
    ) -> Result<T, Failure> {
        let Place::Store { audit, .. } = &self.0 else { return Ok(act.await?) };
        let begun = ActBegun {
            who: "machine".to_owned(),
            name: None,
            what: what.to_owned(),
            path,
            tenant: None,
            why,
            by,
            from: None,
        };
        let id = audit.begin(&begun).await?;
        let done = act.await;
        let ended = match &done {
            Ok(_) => ActEnded { outcome: ActOutcome::Done, code: None },
            Err(error) => ActEnded { outcome: ActOutcome::Refused, code: Some(error.code().as_str().to_owned()) },
        };
        audit.end(&id, &ended).await?;
        Ok(done?)
    }
}
