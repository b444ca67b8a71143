//! Compares the tables of a database with those that our migrations create. To find out what these are, it
//! runs the migrations in a transaction that is rolled back.

use crate::cells::get;
use crate::fault::Fault;
use crate::inventory::Inventory;
use tokio_postgres::Client;

const COLUMNS: &str = "SELECT class.relname, attribute.attname, \
     format_type(attribute.atttypid, attribute.atttypmod) || CASE WHEN attribute.attnotnull THEN ' not null' ELSE '' END \
     FROM pg_attribute AS attribute JOIN pg_class AS class ON class.oid = attribute.attrelid \
     WHERE class.relnamespace = $1 AND class.relkind IN ('r', 'p') AND attribute.attnum > 0 \
     AND NOT attribute.attisdropped";
/// Without the name of the table, which includes its schema.
const INDEXES: &str = "SELECT class.relname, index_class.relname, \
     regexp_replace(pg_get_indexdef(index.indexrelid), '^CREATE (UNIQUE )?INDEX .* USING ', '\\1') \
     FROM pg_index AS index JOIN pg_class AS class ON class.oid = index.indrelid \
     JOIN pg_class AS index_class ON index_class.oid = index.indexrelid \
     WHERE class.relnamespace = $1 AND index.indisvalid";
/// The schema of our tables.
const OURS: &str = "SELECT relnamespace FROM pg_class WHERE oid = to_regclass('punctual')";
const SCRATCH: &str = "SELECT pg_my_temp_schema()";

/// The differences from the tables that these scripts create.
pub(super) async fn problems(
    client: &Client,
    scripts: impl Iterator<Item = &str>,
) -> Result<Vec<String>, Fault> {
    let found = inventory(client, OURS).await?;
    client.batch_execute("BEGIN; SET LOCAL search_path = pg_temp").await?;
    let expected = made_by(client, scripts).await;
    client.batch_execute("ROLLBACK").await?;
    Ok(found.problems(&expected?))
}

async fn made_by(client: &Client, scripts: impl Iterator<Item = &str>) -> Result<Inventory, Fault> {
    for script in scripts {
        client.batch_execute(script).await?;
    }
    inventory(client, SCRATCH).await
}

async fn inventory(client: &Client, schema: &str) -> Result<Inventory, Fault> {
    let mut inventory = Inventory::default();
    let Some(row) = client.query_opt(schema, &[]).await? else { return Ok(inventory) };
    let schema: u32 = row.try_get(0)?;
    for row in client.query(COLUMNS, &[&schema]).await? {
        inventory.add_column(get(&row, 0)?, get::<String>(&row, 1)?, get::<String>(&row, 2)?);
    }
    for row in client.query(INDEXES, &[&schema]).await? {
        inventory.add_index(get(&row, 0)?, get::<String>(&row, 1)?, get::<String>(&row, 2)?);
    }
    Ok(inventory)
}
