//! What an examination found.

use utoipa::ToSchema;

/// What an examination found, the most severe first.
#[derive(ToSchema)]
pub(crate) struct Diagnosis {
    /// What was examined.
    examined: Vec<String>,
    findings: Vec<DiagnosisFinding>,
}

#[derive(ToSchema)]
struct DiagnosisFinding {
    severity: DiagnosisSeverity,
    /// For example `log acme/default` or `handler default/billing`.
    about: String,
    /// A sentence.
    what: String,
    /// What to do, as a sentence.
    advice: String,
}

#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
enum DiagnosisSeverity {
    Critical,
    Warning,
    Note,
}
