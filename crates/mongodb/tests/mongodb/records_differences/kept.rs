//! Cases as lines of JSON, so that what was found stays: `{"documents", "indexes", "condition", "sort", "projection", "limit"}`, in
//! canonical Extended JSON.

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::order::Direction;
use annals_core::{Condition, Index, Projection, RecordQuery, SortBy};

/// Some documents, and what was asked of them.
#[derive(Debug, Clone)]
pub struct Case {
    pub documents: Vec<Document>,
    pub indexes: Vec<Index>,
    pub query: RecordQuery,
}

impl Case {
    /// One line.
    pub fn written(&self) -> String {
        let condition = self.query.condition.to_bson().expect("a condition");
        let condition = Document::try_from(&*condition).expect("a document");
        let way = |direction| if direction == Direction::Ascending { 1 } else { -1 };
        let sort: Document = self.query.sort.iter().map(|by| (by.path.clone(), way(by.direction).into())).collect();
        let projection = match &self.query.projection {
            Projection::Whole => doc! {},
            Projection::Only(paths) => doc! { "only": paths },
            Projection::Without(paths) => doc! { "without": paths },
        };
        let indexes = serde_json::to_string(&self.indexes).expect("indexes");
        let whole = doc! {
            "condition": condition, "sort": sort, "projection": projection, "limit": self.query.limit as i64,
            "indexes": indexes, "documents": self.documents.clone(),
        };
        json(&Bson::Document(whole))
    }

    /// Reads a line.
    pub fn read(line: &str) -> Self {
        let whole: Document = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let part = |name: &str| whole.get_document(name).unwrap_or_else(|error| panic!("{name}: {error}: {line}"));
        let condition = RawDocumentBuf::try_from(part("condition")).expect("a document");
        let direction = |way: &Bson| match way {
            Bson::Int32(-1) => Direction::Descending,
            _ => Direction::Ascending,
        };
        let sort = part("sort").iter().map(|(path, way)| SortBy { path: path.clone(), direction: direction(way) });
        let paths = |name: &str| {
            let paths = part("projection").get_array(name).ok()?;
            Some(paths.iter().filter_map(Bson::as_str).map(str::to_owned).collect())
        };
        let projection = match (paths("only"), paths("without")) {
            (Some(paths), _) => Projection::Only(paths),
            (_, Some(paths)) => Projection::Without(paths),
            _ => Projection::Whole,
        };
        let documents = whole.get_array("documents").expect("documents").iter();
        Self {
            documents: documents.map(|document| document.as_document().expect("a document").clone()).collect(),
            indexes: serde_json::from_str(whole.get_str("indexes").expect("indexes")).expect("indexes"),
            query: RecordQuery {
                sort: sort.collect(),
                projection,
                ..RecordQuery::new("")
                    .matching(Condition::from_bson(&condition).expect("a condition"))
                    .limit(whole.get_i64("limit").expect("a limit") as usize)
            },
        }
    }
}

/// Canonical Extended JSON with the fields in their order.
fn json(value: &Bson) -> String {
    let text = |text: &str| serde_json::to_string(text).expect("a text");
    match value {
        Bson::Document(document) => {
            let fields: Vec<_> =
                document.iter().map(|(name, value)| format!("{}:{}", text(name), json(value))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Bson::Array(values) => format!("[{}]", values.iter().map(json).collect::<Vec<_>>().join(",")),
        other => other.clone().into_canonical_extjson().to_string(),
    }
}
