//! The bodies of requests and responses, as the OpenAPI document describes them.

use utoipa::ToSchema;
use utoipa::openapi::{Content, ObjectBuilder, Ref, RefOr, Schema, Type};

use crate::asked::TAKEN;
use crate::media;

/// A schema and the name it is referred to by.
pub(crate) type Named = (String, RefOr<Schema>);

/// The formats of a body.
#[derive(Default)]
pub(crate) struct Payload {
    /// Media types and their schemas.
    pub contents: Vec<(&'static str, Content)>,
    /// The schemas that these refer to.
    pub schemas: Vec<Named>,
    /// The statuses of a successful response.
    pub statuses: Vec<u16>,
}

impl Payload {
    /// Describes a JSON response of this shape, with status 200.
    pub fn json<T: ToSchema>() -> Self {
        Self { statuses: vec![200], ..Self::default() }.of::<T>(&[media::JSON])
    }

    /// Describes a response that is a document of this shape: JSON, or BSON for a caller that accepts it.
    pub fn document<T: ToSchema>() -> Self {
        Self { statuses: vec![200], ..Self::default() }.of::<T>(&[media::JSON, media::BSON])
    }

    /// Describes a request body that is a document of this shape.
    pub fn asked<T: ToSchema>() -> Self {
        Self::default().of::<T>(TAKEN)
    }

    /// Describes a request body that is JSON of this shape.
    pub fn body<T: ToSchema>() -> Self {
        Self::default().of::<T>(&[media::JSON])
    }

    /// Describes a response without a schema, such as a stream; `about` says what it contains.
    pub fn raw(media_type: &'static str, about: &'static str) -> Self {
        Self { statuses: vec![200], ..Self::default() }.or(media_type, about)
    }

    /// Adds another format, without a schema.
    #[must_use]
    pub fn or(mut self, media_type: &'static str, about: &'static str) -> Self {
        let text = ObjectBuilder::new().schema_type(Type::String).description(Some(about));
        self.contents.push((media_type, Content::new(Some(Schema::Object(text.build())))));
        self
    }

    /// Describes a response with status 201 if something was created, or 200 if it existed already.
    #[must_use]
    pub fn created(self) -> Self {
        Self { statuses: vec![201, 200], ..self }
    }

    fn of<T: ToSchema>(mut self, media_types: &[&'static str]) -> Self {
        let schema = T::schema();
        // Arrays and scalars are inlined.
        let named = match &schema {
            RefOr::T(Schema::Array(_)) => false,
            RefOr::T(Schema::Object(object)) => object.schema_type == Type::Object.into(),
            _ => true,
        };
        let shown = if named { Ref::from_schema_name(T::name()).into() } else { schema.clone() };
        self.contents.extend(media_types.iter().map(|media_type| (*media_type, Content::new(Some(shown.clone())))));
        if named {
            self.schemas.push((T::name().into_owned(), schema));
        }
        T::schemas(&mut self.schemas);
        self
    }
}

/// Any document; the caller defines its fields.
#[derive(ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct Document(());
