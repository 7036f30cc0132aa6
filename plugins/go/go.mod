module clearway.example/plugin

go 1.19
