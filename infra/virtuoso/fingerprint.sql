select concat(cast(n as varchar), ' triples') from (sparql
  select count(*) as ?n from <urn:kgqa:graph> where { ?s ?p ?o }) as counted;
select concat(cast(n as varchar), ' owl:sameAs links') from (sparql
  prefix owl: <http://www.w3.org/2002/07/owl#>
  select count(*) as ?n from <urn:kgqa:graph> where { ?s owl:sameAs ?o }) as counted;
select concat(cast(n as varchar), ' names that are not English') from (sparql
  prefix ns: <http://rdf.freebase.com/ns/>
  select count(*) as ?n from <urn:kgqa:graph> where { ?s ns:type.object.name ?o . filter(lang(?o) != 'en') }) as counted;
select concat(cast(n as varchar), ' facts about g. nodes') from (sparql
  select count(*) as ?n from <urn:kgqa:graph>
  where { ?s ?p ?o . filter(strstarts(str(?s), 'http://rdf.freebase.com/ns/g.')) }) as counted;
