//! Reads a JSON body field by field, with vLLM's texts for errors. As in vLLM, `null` counts as absent.

use serde_json::{Map, Value};

use super::errors::{RequestError, malformed, python_repr};

/// The fields of an object, and the object's location in the body.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: String,
}

/// Parses the body as an object.
pub(super) fn parse(body: &[u8]) -> Result<Map<String, Value>, RequestError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => {
            let message = "Input should be a valid dictionary or object to extract fields from";
            Err(RequestError::validation(
                "model_attributes_type",
                "body",
                message,
                &python_repr(&other),
                None,
            ))
        }
        Err(error) => Err(malformed(body, &error)),
    }
}

impl<'a> Fields<'a> {
    /// Returns the fields of the body itself.
    pub(super) fn of_body(map: &'a Map<String, Value>) -> Self {
        Self { map, place: "body".to_owned() }
    }

    fn given(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, kind: &str, expected: &str, value: &Value) -> RequestError {
        let message = format!("Input should be a valid {expected}");
        RequestError::validation(kind, &format!("{}.{name}", self.place), &message, &python_repr(value), None)
    }

    /// Returns the refusal for a required field that is absent.
    pub(super) fn missing(&self, name: &str) -> RequestError {
        let input = format!("'<dict of {} items>'", self.map.len());
        RequestError::validation("missing", &format!("{}.{name}", self.place), "Field required", &input, None)
    }

    fn read<T>(
        &self,
        name: &str,
        kind: &str,
        expected: &str,
        as_type: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, RequestError> {
        self.given(name)
            .map(|value| as_type(value).ok_or_else(|| self.wrong(name, kind, expected, value)))
            .transpose()
    }

    /// Reads `true` or `false`.
    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, RequestError> {
        self.read(name, "bool_type", "boolean", Value::as_bool)
    }

    /// Reads a whole number, which may be written as `5.0`.
    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, RequestError> {
        // Below 9e15, a double represents every whole number exactly.
        let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
        self.read(name, "int_type", "integer", |value| {
            value.as_i64().or_else(|| value.as_f64().and_then(whole))
        })
    }

    /// Reads any number.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, RequestError> {
        self.read(name, "float_type", "number", Value::as_f64)
    }

    /// Reads a string.
    pub(super) fn string(&self, name: &str) -> Result<Option<&'a str>, RequestError> {
        self.read(name, "string_type", "string", Value::as_str)
    }

    /// Reads a list.
    pub(super) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, RequestError> {
        self.read(name, "list_type", "list", |value| value.as_array().map(Vec::as_slice))
    }

    /// Reads an object.
    pub(super) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, RequestError> {
        let map = self.read(name, "dict_type", "dictionary", Value::as_object)?;
        Ok(map.map(|map| Fields { map, place: format!("{}.{name}", self.place) }))
    }

    /// Reads a list of token ids.
    pub(super) fn ids(&self, name: &str) -> Result<Option<Vec<u32>>, RequestError> {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = |value: &'a Value| value.as_array()?.iter().map(id).collect::<Option<Vec<u32>>>();
        self.read(name, "list_type", "list of token ids", ids)
    }

    /// Reads a list of objects.
    pub(super) fn objects(&self, name: &str) -> Result<Option<Vec<Fields<'a>>>, RequestError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let object = |(index, item): (usize, &'a Value)| {
            let place = format!("{}.{name}.{index}", self.place);
            match item.as_object() {
                Some(map) => Ok(Fields { map, place }),
                None => {
                    let message = "Input should be a valid dictionary";
                    Err(RequestError::validation("dict_type", &place, message, &python_repr(item), None))
                }
            }
        };
        items.iter().enumerate().map(object).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// Reads a text: a string, or the joined parts of a list. Refuses parts that are not text.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, RequestError> {
        if self.given(name).is_none_or(Value::is_string) {
            return Ok(self.string(name)?.map(str::to_owned));
        }
        let mut text = String::new();
        for part in self.objects(name)?.unwrap_or_default() {
            match part.string("type")?.unwrap_or_default() {
                "text" | "input_text" | "output_text" => {
                    text.push_str(part.string("text")?.unwrap_or_default())
                }
                other => {
                    return Err(RequestError::bad_request(format!(
                        "sim is not a multimodal model: part of type `{other}`"
                    )));
                }
            }
        }
        Ok(Some(text))
    }

    /// Reads one string or several.
    pub(super) fn strings(&self, name: &str) -> Result<Vec<String>, RequestError> {
        if self.given(name).is_none_or(Value::is_string) {
            return Ok(self.string(name)?.map(str::to_owned).into_iter().collect());
        }
        let items = self.list(name)?.unwrap_or_default();
        let string = |item: &Value| {
            item.as_str().map(str::to_owned).ok_or_else(|| self.wrong(name, "string_type", "string", item))
        };
        items.iter().map(string).collect()
    }

    /// Returns the value of a field as it is.
    pub(super) fn raw(&self, name: &str) -> Option<&'a Value> {
        self.given(name)
    }
}
