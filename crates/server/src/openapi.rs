//! `GET /openapi.json`: the API as an OpenAPI 3.1 document, built from the operations that the router serves.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use annals_core::Code;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{OperationBuilder, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, Info, OpenApi, OpenApiBuilder, Paths, Ref, Required, ResponseBuilder, Tag,
};

use crate::answer::written;
use crate::media;
use crate::payload::{Document, Named, Payload};
use crate::route::{Feature, Operation, Permission, get};
use crate::router::features;

/// Returns the operation that serves the OpenAPI document.
pub(crate) fn feature() -> Feature {
    let document = get("/openapi.json", Permission::Open, document).described(
        "openapi",
        "Returns this document.",
        Payload::json::<Document>(),
    );
    Feature::new("Index", [document])
}

/// The name of the security scheme.
const BEARER: &str = "bearer";

static DOCUMENT: LazyLock<Vec<u8>> = LazyLock::new(|| serde_json::to_vec(&build(features())).unwrap_or_default());

async fn document() -> Response {
    written(StatusCode::OK, DOCUMENT.clone())
}

/// An RFC 9457 problem document, with `application/problem+json`. Some codes add members of their own.
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "describes what `Problem` writes")]
struct ProblemDocument {
    /// The address of the page of the code, such as `/errors/version_conflict`.
    r#type: String,
    /// The meaning of the code.
    title: String,
    status: u16,
    /// The stable code, for programs.
    code: String,
    /// The outcome of this request.
    detail: String,
    /// The refused field, parameter or header.
    #[schema(nullable = false)]
    path: Option<String>,
    /// What to do.
    advice: String,
    /// Additional members of some codes, such as `actual_version`.
    #[serde(flatten)]
    facts: HashMap<String, serde_json::Value>,
}

fn build(features: Vec<Feature>) -> OpenApi {
    let mut paths = Paths::new();
    let mut schemas: Vec<Named> =
        vec![(ProblemDocument::name().into_owned(), <ProblemDocument as utoipa::PartialSchema>::schema())];
    let mut tags: Vec<Tag> = Vec::new();
    for feature in features {
        if tags.iter().all(|tag| tag.name != feature.name) {
            tags.push(Tag::new(feature.name));
        }
        for operation in feature.operations {
            let (path, method) = (operation.path, operation.method.clone());
            let item = PathItem::new(method, describe(feature.name, operation, &mut schemas));
            match paths.paths.get_mut(path) {
                Some(known) => known.merge_operations(item),
                None => {
                    paths.paths.insert(path.to_owned(), item);
                }
            }
        }
    }
    let mut info = Info::new("Annals", env!("CARGO_PKG_VERSION"));
    info.description = Some("An event store and event backbone. docs/http.md describes the API in words.".to_owned());
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.description = Some(
        "An API key, or a JSON Web Token of a configured issuer. A server in development mode requires none."
            .to_owned(),
    );
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .build();
    OpenApiBuilder::new().info(info).paths(paths).components(Some(components)).tags(Some(tags)).build()
}

fn describe(tag: &str, operation: Operation, schemas: &mut Vec<Named>) -> utoipa::openapi::path::Operation {
    let refusals = refusals(&operation);
    let Operation { needs, id, summary, inputs, body, answers, audited, .. } = operation;
    let mut described = OperationBuilder::new().tag(tag).operation_id(Some(id)).summary(Some(summary));
    for parameter in inputs.parameters {
        described = described.parameter(parameter);
    }
    if let Some(body) = body {
        schemas.extend(body.schemas);
        let mut shown = RequestBodyBuilder::new().required(Some(Required::True));
        for (media_type, content) in body.contents {
            shown = shown.content(media_type, content);
        }
        described = described.request_body(Some(shown.build()));
    }
    schemas.extend(answers.schemas);
    for status in answers.statuses {
        let meaning = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
        let contents = answers.contents.iter().cloned();
        let shown = contents.fold(ResponseBuilder::new().description(meaning), |shown, (media_type, content)| {
            shown.content(media_type, content)
        });
        described = described.response(status.to_string(), shown.build());
    }
    for (status, codes) in refusals {
        described = described.response(status.to_string(), problem(codes));
    }
    let said = ExtensionsBuilder::new().add("x-annals-permission", json!(needs.permission.as_str()));
    let said = said.add("x-annals-audited", json!(audited)).build();
    if needs.permission != Permission::Open {
        described = described.security(SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, []));
    }
    described.extensions(Some(said)).build()
}

/// Returns the response for a status, with the codes it can have.
fn problem(codes: Vec<Code>) -> utoipa::openapi::Response {
    let lines = codes.iter().map(|code| format!("- `{}`: {}", code.as_str(), code.meaning()));
    let problem = Content::new(Some(Ref::from_schema_name(ProblemDocument::name())));
    let response = ResponseBuilder::new().description(lines.collect::<Vec<_>>().join("\n"));
    response.content(media::PROBLEM, problem).build()
}

/// Returns the codes with which an operation can refuse, by status: those of all operations with such inputs, and its own.
fn refusals(operation: &Operation) -> BTreeMap<u16, Vec<Code>> {
    let mut codes = vec![Code::InvalidPath, Code::HeadersTooLarge, Code::Internal, Code::NotReady];
    // Health checks and scrapers may send any query.
    if !operation.inputs.query || operation.needs.permission != Permission::Open {
        codes.push(Code::InvalidQuery);
    }
    if operation.needs.permission != Permission::Open {
        codes.extend([Code::Unauthenticated, Code::Forbidden, Code::RateLimited]);
    }
    if operation.inputs.caller {
        codes.extend([Code::UnknownTenant, Code::Closing, Code::Overloaded, Code::ReadFailed, Code::StoreDamaged]);
    }
    if operation.inputs.parameters.iter().any(|parameter| parameter.name == "scope") {
        codes.push(Code::UnknownScope);
    }
    if operation.body.is_some() {
        codes.extend([
            Code::NotJson,
            Code::RequestTimeout,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::InvalidBody,
            Code::Overloaded,
        ]);
    }
    codes.extend(operation.refusals);
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in codes {
        let known = by_status.entry(code.status()).or_default();
        if !known.contains(&code) {
            known.push(code);
        }
    }
    by_status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_schema_means_one_schema() {
        let mut known: HashMap<String, String> = HashMap::new();
        for operation in features().into_iter().flat_map(|feature| feature.operations) {
            let schemas = operation.body.into_iter().flat_map(|body| body.schemas).chain(operation.answers.schemas);
            for (name, schema) in schemas {
                let schema = serde_json::to_string(&schema).expect("JSON");
                let before = known.insert(name.clone(), schema.clone());
                assert!(before.is_none_or(|before| before == schema), "{name} names two schemas");
            }
        }
        assert!(known.len() > 40, "{}", known.len());
    }
}
