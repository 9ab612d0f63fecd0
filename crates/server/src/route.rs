//! The building blocks of a feature: each operation with its path, method, permission and OpenAPI description.
//!
//! A file of `v1` exports a `feature()`, which [`router`](crate::router) lists. Routes, metrics labels, the index of `GET /v1` and the
//! OpenAPI document all derive from it. The parameters of an operation come from the argument types of its handler, so they always match
//! what the handler reads.

use std::sync::Arc;

use annals_core::Code;
use axum::extract::{Path, Request, State};
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use utoipa::IntoParams;
use utoipa::openapi::path::{HttpMethod, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::{Object, Required, Type};

use crate::accept::Accept;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::query::Query;
use crate::security::Needs;
use crate::state::Server;

/// The permission that an operation requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// None: health checks, scrapers and client generators have no credentials.
    Open,
    /// Reading what a tenant stores.
    Reader,
    /// Changing what a tenant stores, and reading it.
    Writer,
    /// Operating the server: the views and acts that are reserved for operators.
    Operator,
    /// Everything, such as copying the whole store.
    Admin,
}

impl Permission {
    /// Returns the name of the permission in the OpenAPI document.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Reader => "reader",
            Self::Writer => "writer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// The operations of one file.
pub(crate) struct Feature {
    /// The tag of the operations in the OpenAPI document.
    pub name: &'static str,
    pub operations: Vec<Operation>,
}

impl Feature {
    /// Groups operations under a tag.
    pub fn new(name: &'static str, operations: impl Into<Vec<Operation>>) -> Self {
        Self { name, operations: operations.into() }
    }
}

/// One method of one path.
pub(crate) struct Operation {
    pub method: HttpMethod,
    /// The path, which is also the metrics label.
    pub path: &'static str,
    pub needs: Needs,
    /// The operation's name in generated clients.
    pub id: &'static str,
    pub summary: &'static str,
    pub inputs: Inputs,
    pub body: Option<Payload>,
    pub answers: Payload,
    /// Error codes that only this operation can refuse with.
    pub refusals: &'static [Code],
    /// Whether each use of it is recorded in the audit log.
    pub audited: bool,
    pub methods: MethodRouter<Arc<Server>>,
}

/// An operation that is not described yet, so that no feature can contain it.
#[must_use]
pub(crate) struct Draft {
    method: HttpMethod,
    path: &'static str,
    permission: Permission,
    inputs: Inputs,
    methods: MethodRouter<Arc<Server>>,
}

impl Draft {
    /// Sets the operation's id, a one-sentence summary and the response.
    pub fn described(self, id: &'static str, summary: &'static str, answers: Payload) -> Operation {
        let Self { method, path, permission, inputs, methods } = self;
        // Every operation for operators or administrators that is not a GET is audited, without its feature having to ask for it.
        let audited = matches!(permission, Permission::Operator | Permission::Admin) && method != HttpMethod::Get;
        Operation {
            audited,
            method,
            path,
            needs: Needs::new(permission),
            id,
            summary,
            inputs,
            body: None,
            answers,
            refusals: &[],
            methods,
        }
    }
}

impl Operation {
    /// Sets the body that the operation accepts.
    #[must_use]
    pub fn takes(self, body: Payload) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Sets the error codes besides those of every operation with such inputs.
    #[must_use]
    pub fn refuses(self, refusals: &'static [Code]) -> Self {
        Self { refusals, ..self }
    }

    /// Records each use in the audit log although the operation only reads.
    #[must_use]
    pub fn audited(self) -> Self {
        Self { audited: true, ..self }
    }

    /// Leaves the check of the scope to the handler, because the definition that the operation is about contains the scope. The handler
    /// accesses its resources through [`scoped`](crate::scoped).
    #[must_use]
    pub fn with_scope_in_definition(self) -> Self {
        Self { needs: self.needs.without_scope(), ..self }
    }

    /// Admits callers that are restricted to event types: the handler checks what it commits or reads with
    /// [`event_types`](crate::event_types).
    #[must_use]
    pub fn checking_event_types(self) -> Self {
        Self { needs: self.needs.checking_event_types(), ..self }
    }

    /// Admits callers that are restricted to streams: the handler checks the stream that it reads with
    /// [`granted_streams`](crate::granted_streams).
    #[must_use]
    pub fn checking_streams(self) -> Self {
        Self { needs: self.needs.checking_streams(), ..self }
    }

    /// Allows any query, which the handler ignores.
    #[must_use]
    pub fn ignoring_query(mut self) -> Self {
        self.inputs.query = true;
        self
    }
}

macro_rules! methods {
    ($($function:ident $method:ident $filter:ident,)*) => {$(
        /// Drafts an operation with this method.
        pub(crate) fn $function<H, T>(path: &'static str, permission: Permission, handler: H) -> Draft
        where
            H: Handler<T, Arc<Server>>,
            T: Arguments + 'static,
        {
            let methods = on(MethodFilter::$filter, handler);
            Draft { method: HttpMethod::$method, path, permission, inputs: T::inputs(path), methods }
        }
    )*};
}

methods! {
    get Get GET,
    post Post POST,
    put Put PUT,
    patch Patch PATCH,
    delete Delete DELETE,
}

/// The parts of a request, besides the body, that a handler reads.
#[derive(Default)]
pub(crate) struct Inputs {
    pub parameters: Vec<Parameter>,
    /// Whether the handler reads the query.
    pub query: bool,
    /// Whether the handler reads the caller, and so may refuse its tenant.
    pub caller: bool,
}

impl Inputs {
    /// Adds a header with a text value.
    pub fn header(&mut self, name: &'static str, about: &'static str) {
        self.parameter(name, ParameterIn::Header, Required::False, Some(about));
    }

    fn parameter(&mut self, name: &str, place: ParameterIn, required: Required, about: Option<&str>) {
        let text = Object::with_type(Type::String);
        let parameter = ParameterBuilder::new().name(name).parameter_in(place).required(required);
        self.parameters.push(parameter.description(about).schema(Some(text)).build());
    }
}

/// An argument of a handler.
pub(crate) trait Argument {
    /// Adds what this argument reads.
    fn describe(inputs: &mut Inputs);
}

impl Argument for State<Arc<Server>> {
    fn describe(_: &mut Inputs) {}
}

/// Path parameters are taken from the path itself.
impl<T> Argument for Path<T> {
    fn describe(_: &mut Inputs) {}
}

impl Argument for Accept {
    fn describe(_: &mut Inputs) {}
}

impl Argument for Request {
    fn describe(_: &mut Inputs) {}
}

impl Argument for Caller {
    fn describe(inputs: &mut Inputs) {
        inputs.caller = true;
        inputs.header("Annals-Tenant", "The tenant; `default` when absent.");
        inputs.header("traceparent", "The caller's span, in the format of W3C Trace Context.");
    }
}

impl<T: IntoParams> Argument for Query<T> {
    fn describe(inputs: &mut Inputs) {
        inputs.query = true;
        inputs.parameters.extend(T::into_params(|| Some(ParameterIn::Query)));
    }
}

/// The arguments of a handler, as axum numbers them in [`Handler`].
pub(crate) trait Arguments {
    /// Returns what the arguments read from a request to `path`.
    fn inputs(path: &str) -> Inputs;
}

fn of_path(path: &str) -> Inputs {
    let mut inputs = Inputs::default();
    for part in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
        inputs.parameter(part, ParameterIn::Path, Required::True, None);
    }
    inputs
}

impl Arguments for ((),) {
    fn inputs(path: &str) -> Inputs {
        of_path(path)
    }
}

macro_rules! arguments {
    ($(($($argument:ident)*))*) => {$(
        impl<M, $($argument: Argument),*> Arguments for (M, $($argument,)*) {
            fn inputs(path: &str) -> Inputs {
                let mut inputs = of_path(path);
                $($argument::describe(&mut inputs);)*
                inputs
            }
        }
    )*};
}

arguments! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }
