//! The parts of a feature: each operation with its path, method and permission, and with all that the OpenAPI document says of it.
//!
//! A file of `v1` exports a `feature()`, and [`router`](crate::router) lists it. Routes, metrics labels, the index of `GET /v1` and the
//! OpenAPI document all come from there. The parameters of an operation come from the types of its handler's arguments, so they cannot
//! differ from what the handler reads.

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
use crate::state::Server;

/// What a caller must be allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Nothing: health checks, scrapers and generators of clients have no credentials.
    Open,
    /// Read what a tenant holds.
    Reader,
    /// Change what a tenant holds, and read it.
    Writer,
    /// Run the server: look at and decide what nobody else may.
    Operator,
    /// Everything, such as copying the whole store.
    Admin,
}

impl Permission {
    /// The permission as the OpenAPI document shows it.
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
    /// The tag of its operations in the OpenAPI document.
    pub name: &'static str,
    pub operations: Vec<Operation>,
}

impl Feature {
    /// Joins operations under a name.
    pub fn new(name: &'static str, operations: impl Into<Vec<Operation>>) -> Self {
        Self { name, operations: operations.into() }
    }
}

/// One method of one path.
pub(crate) struct Operation {
    pub method: HttpMethod,
    /// The path, which is also the metrics label.
    pub path: &'static str,
    pub permission: Permission,
    /// The name of the operation in generated clients.
    pub id: &'static str,
    pub summary: &'static str,
    pub inputs: Inputs,
    pub body: Option<Payload>,
    pub answers: Payload,
    /// Refusals of this operation alone.
    pub refusals: &'static [Code],
    /// Whether each use of it is an event of the audit log.
    pub audited: bool,
    /// Whether the scope is in the definition that it is about, so that its handler checks the scope and the gate does not.
    pub scope_in_definition: bool,
    /// Whether its handler checks event types, so that it takes callers that are restricted to some.
    pub checks_event_types: bool,
    pub methods: MethodRouter<Arc<Server>>,
}

/// An operation that nobody has described yet, and that no feature takes.
#[must_use]
pub(crate) struct Draft {
    method: HttpMethod,
    path: &'static str,
    permission: Permission,
    inputs: Inputs,
    methods: MethodRouter<Arc<Server>>,
}

impl Draft {
    /// Gives the operation its id, a summary of one sentence, and what it answers.
    pub fn described(self, id: &'static str, summary: &'static str, answers: Payload) -> Operation {
        let Self { method, path, permission, inputs, methods } = self;
        // What only operators may do is audited, unless it only reads. No feature has to think of it.
        let audited = matches!(permission, Permission::Operator | Permission::Admin) && method != HttpMethod::Get;
        Operation {
            audited,
            method,
            path,
            permission,
            id,
            summary,
            inputs,
            body: None,
            answers,
            refusals: &[],
            scope_in_definition: false,
            checks_event_types: false,
            methods,
        }
    }
}

impl Operation {
    /// The body that the operation takes.
    #[must_use]
    pub fn takes(self, body: Payload) -> Self {
        Self { body: Some(body), ..self }
    }

    /// What the operation refuses beside what every operation with such inputs refuses.
    #[must_use]
    pub fn refuses(self, refusals: &'static [Code]) -> Self {
        Self { refusals, ..self }
    }

    /// Makes each use an event of the audit log although it only reads.
    #[must_use]
    pub fn audited(self) -> Self {
        Self { audited: true, ..self }
    }

    /// Leaves the scope to the handler, which gets what it is about from [`scoped`](crate::scoped).
    #[must_use]
    pub fn with_scope_in_definition(self) -> Self {
        Self { scope_in_definition: true, ..self }
    }

    /// Takes callers that are restricted to event types: the handler checks what it commits or reads with
    /// [`event_types`](crate::event_types).
    #[must_use]
    pub fn checking_event_types(self) -> Self {
        Self { checks_event_types: true, ..self }
    }

    /// Lets the handler ignore the query, whatever it holds.
    #[must_use]
    pub fn ignoring_query(mut self) -> Self {
        self.inputs.query = true;
        self
    }
}

macro_rules! methods {
    ($($function:ident $method:ident $filter:ident,)*) => {$(
        /// An operation of this method.
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

/// What a handler reads of a request beside the body.
#[derive(Default)]
pub(crate) struct Inputs {
    pub parameters: Vec<Parameter>,
    /// Whether it reads the query.
    pub query: bool,
    /// Whether it reads the caller, and so may refuse its tenant.
    pub caller: bool,
}

impl Inputs {
    /// Adds a header that is a text.
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
    /// Adds what it reads.
    fn describe(inputs: &mut Inputs);
}

impl Argument for State<Arc<Server>> {
    fn describe(_: &mut Inputs) {}
}

/// The path itself says its parameters.
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
        inputs.header("traceparent", "The caller's span, as W3C Trace Context writes it.");
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
    /// What they read of a request to `path`.
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
